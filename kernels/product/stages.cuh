// What the stages of a body on tensor cores promise each other, whose inputs come by boxes: the loops, products and results of
// kernels/product/staged_conv.cuh and of the bodies that share them. A rTask calls them in this order:
//   results.start    all that is known before the inputs are there
//   product.start    the same of the product, sums of zero included
//   results.fetch    the inputs are there: loads of residuals and the like are on their way while the product is made
//   the loop         steps of k: products are begun or made, stages of the two rings are taken and given back
//   results.meanwhile  the last products have been begun
//   results.share    a round's sums go to shared memory, as the product has them
//   results.finish   and from there, behind a barrier, become results
#pragma once

#include "kernels/product/staged_args.cuh"

namespace rk {

// Sums of a tile of kChannels by kPixels in the registers of all compute threads, of kWarpsK shares of k. They leave in kRounds rounds.
template <class P>
concept TileSums = requires(P product, const P& made, const StagedConvArgs& args, char* sums, int round) {
  typename P::Of::Out;    // the type of the results in memory
  typename P::Of::Added;  // and of the residual
  requires P::kChannels >
  0 && P::kPixels > 0 && P::kRounds > 0 && P::kWarpsK > 0 && P::kStepBytes > 0;
  product.start(args);
  made.store(sums, round);
};
// A product that begins steps, which are awaited LEFT steps later: for LaggedLoop.
template <class P>
concept LaggedSums = TileSums<P> && requires(P product, const char* stages, int byte) {
  product.template begin<0>(stages, byte, stages, byte);
  P::template wait<1>();
};
// A product that begins a step by the places of its operands, kSteps in a stage: for StageLoop.
template <class P>
concept SteppedSums = TileSums<P> &&(P::kSteps > 0) && requires(P product, uint32_t place) {
  product.begin_step(place, place, place);
  product.first_input, product.first_weight, product.eight_bytes;
};

// What becomes of the sums of a product P.
template <class R, class Veu, class P>
concept TileResults = requires(R results, const Task<Veu>& task, const StagedConvArgs& args, const StagedTile& tile, const P& product,
                               char* sums, int round) {
  requires R::kRounds >
  0;
  results.start(task, args, tile);
  results.fetch(task, args, tile);
  results.meanwhile();
  results.share(task, args, tile, product, round);
  results.finish(task, args, tile, sums, round);
  results.work;
};

}  // namespace rk
