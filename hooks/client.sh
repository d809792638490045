# A hook of one run, as the runtime starts it: sh client.sh RUN-DIRECTORY HOOK-PROGRAM [ARG...] VERB
#
# Asks the run's keeper (launcher/run/keeper.py) to do the hook's work for this process, which costs it no start of an
# interpreter, and ends with the status that it answers. The keeper's death reads as end of file: then, and whenever
# anything is not as it should be, this becomes the ordinary hook, on the same state. Builtins only; the state on
# standard input is left alone.
run=$1
shift
for verb; do :; done
set -C
# An answer is for one process: only the first of a verb asks.
if [ -p "$run/$verb.answer" ] && true >"$run/$verb.asked"; then
	# `read` puts another file in standard input's place for a while: the keeper finds the state here (hooks/serve.py).
	exec 5<&0
	# Both ends at first, because opening one alone waits for the other (fifo(7)).
	exec 3<>"$run/$verb.answer"
	exec 4<"$run/$verb.answer"
	exec 3<&-
	exec 3<>"$run/ask"
	echo "$verb $$" >&3
	exec 3<&-
	read -r status <&4
	case $status in
	0 | 1) exit "$status" ;;
	esac
	exec 4<&- 5<&-
	# Whoever was asked may have taken the state with it (hooks/lastword.py).
	export CARD_RUN_INSTEAD=1
fi
exec "$@"
