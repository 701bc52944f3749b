# shellcheck shell=bash
# Completion of tamp in bash. The package bash-completion loads this file by itself; without that package, source this file. The program
# itself lists its commands, options and vDevices.
_tamp() {
  local program=${COMP_WORDS[0]/#\~/$HOME} word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} command='' words='' i
  for ((i = 1; i < COMP_CWORD; ++i)); do
    if [[ ${COMP_WORDS[i]} != -* ]]; then
      command=${COMP_WORDS[i]}
      break
    fi
  done
  case $before in
    --vdevice) words=auto\ $("$program" devices 2>/dev/null | sed -nE '2,$ s/^([^ ]+) .*/\1/p') ;;
    --precision) words='fp32 tf32 fp16 bf16' ;;
    --activations) words='auto fp32' ;;
    --execution) words='persistent graph' ;;
    --policy) words='best wavefront greedy sequential list wavefront-fastest wavefront-launches ios ios-merge ios-parallel' ;;
    --device) words='cuda cpu' ;;
    *)
      if [[ -z $command ]]; then
        words=$("$program" --help 2>/dev/null | sed -nE '/^Subcommands:/,/^$/ s/^  ([a-z]+) .*/\1/p')
        words+=' --help --version'
      elif [[ $command == help ]]; then
        words=$("$program" --help 2>/dev/null | sed -nE '/^Subcommands:/,/^$/ s/^  ([a-z]+) .*/\1/p')
      elif [[ $word == -* ]]; then
        words=$("$program" "$command" --help 2>/dev/null | sed -nE 's/^  (-[a-z],)?(--[a-z-]+).*/\2/p')
      fi
      ;;
  esac
  # shellcheck disable=SC2207  # words without blanks; where none fits, bash completes names of files
  COMPREPLY=($(compgen -W "$words" -- "$word"))
}
complete -o bashdefault -o default -F _tamp tamp
