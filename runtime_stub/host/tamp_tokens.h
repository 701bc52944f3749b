/* What generated headers of programs that make tokens share: what a call of NAME_generate is given. */
#ifndef TAMP_TOKENS_H
#define TAMP_TOKENS_H

#include <stdint.h>

/* Zero in a field means its default, unless it says otherwise. */
typedef struct tamp_tokens {
  const int64_t* prompt; /* host memory; at least one token, each below the number of words */
  int32_t prompt_count;
  int32_t max_tokens;       /* at least 1 are made, unless the call is cancelled before */
  float temperature;        /* 0: always the word of the largest score, the first of equals */
  int32_t top_k;            /* 0: all words */
  float top_p;              /* 0 or 1: all words */
  float repetition_penalty; /* scores of tokens of this call's prompt and text are divided by it if positive, else multiplied. 0: 1 */
  uint64_t seed;            /* the same seed, options and prompt make the same tokens */
  const int64_t* stops;     /* tokens that end the text, and belong to it; NULL: those of the compilation. At most 16 */
  int32_t stop_count;
  /* Of the prompt's first token. 0 begins a text; else the text goes on that earlier calls of this context have made: each token that one
     of them was given, prompts included, is one position, but for the last token made, with which this prompt begins. */
  int64_t position;
  const void* const* inputs; /* device pointers of those that the header calls "as each call gives it", by index; NULL if there are none */
  /* Called for each token as it is made, by the thread that called. Not 0: the text ends with this token. May be NULL. */
  int (*on_token)(void* user, int64_t token);
  void* user;
  /* Of a program with lengths, for inputs that each call gives: all of them in the order of NAME_lengths, that of the tokens being any.
     NULL: the largest. */
  const int64_t* lengths;
} tamp_tokens;

#endif
