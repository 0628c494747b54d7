#!/bin/sh
# Install the parallel environment (PE) of tf_submit in the running Grid Engine cluster, or take it out again.
#
# The values come from tensorflow.pe; which attributes and columns there are is asked of the cluster, so one
# script serves every flavour and version. All is checked before anything is changed.

set -eu
export LC_ALL=C SGE_SINGLE_LINE=1  # SGE_SINGLE_LINE: qconf does not break long lines

settings=$(dirname -- "$(readlink -f -- "$0")")/tensorflow.pe
default_queue=all.q

usage() {
    cat <<END
usage: install.sh [--pe NAME] [--queue QUEUE]... [--gpu-complex] [--force] [--dry-run] [--uninstall]

Install the parallel environment of tensorflow.pe in the running Grid Engine cluster. Run it on an admin host
as a Grid Engine manager. Running it again changes nothing.

  --pe NAME       name of the parallel environment (default: $(setting pe_name))
  --queue QUEUE   cluster queue whose jobs may use it, can be repeated (default: $default_queue)
  --gpu-complex   also add the resource 'gpu' to the complex list: -l gpu=1 asks for one GPU for each slot
  --force         replace a PE or a complex 'gpu' that differs; the old one is kept in a file in the current
                  directory
  --dry-run       change nothing, say what would be changed
  --uninstall     take the PE out of the given queues (default: out of every queue) and remove it when no
                  queue has it any more; with --gpu-complex remove the complex 'gpu', too

Exit status: 0 done or nothing to do, 1 refused or failed, 2 wrong usage; with --dry-run 3 if there is
something to change.
END
}

# ---- saying and doing --------------------------------------------------------------------------------------

say() { printf '%s\n' "$*"; }

# advise CURE: what to do about an error that was said; leave.
advise() {
    say "    $1" >&2
    exit 1
}

# refuse WHY CURE: an error; leave.
refuse() {
    say "install.sh: $1" >&2
    advise "$2"
}

wrong_usage() {
    say "install.sh: $1; see install.sh --help" >&2
    exit 2
}

# change WHAT COMMAND...: say what is done and do it; with --dry-run only say it. Fails when the command does.
change() {
    what=$1
    shift
    changes=1
    if [ "$dry_run" ]; then
        say "would $what"
    elif "$@" >"$work/said" 2>&1; then
        say "$what"
    else
        say "install.sh: cannot $what: $(cat "$work/said")" >&2
        return 1
    fi
}

# keep FILE NAME: a copy of FILE in the current directory, before what it describes is replaced or removed.
keep() {
    copy=$PWD/$2.$(date +%Y%m%d-%H%M%S)
    change "keep the old one in $copy" cp "$1" "$copy"
}

# ---- the cluster -------------------------------------------------------------------------------------------

# The PE that qconf offers for editing has every attribute that the cluster knows. With `cat` for an editor it
# is printed and nothing is added: qconf always ends with "file unchanged". Only a manager on an admin host
# gets it.
read_template() {
    command -v qconf >/dev/null ||
        refuse "there is no qconf in PATH" "Source the cluster's settings.sh (\$SGE_ROOT/\$SGE_CELL/common)."
    EDITOR="cat" qconf -ap "$pe" >"$work/template" 2>"$work/said" || :
    grep -q '^pe_name ' "$work/template" && return
    said=$(cat "$work/said")
    case $said in
        *manager*) cure="Run it as a manager: qconf -sm lists them, they can add you: qconf -am $(id -un)" ;;
        *admin*) cure="Run it on an admin host: qconf -sh lists them, qconf -ah $(uname -n) adds this one" ;;
        *) cure="Does the qmaster run, and are SGE_ROOT and SGE_CELL those of the cluster? Try: qconf -sh" ;;
    esac
    refuse "qconf says: $said" "$cure"
}

knows() { grep -q "^$1 " "$work/template"; }

# Told by the attributes: what the flavours call themselves varies with their versions.
flavour() {
    if knows ign_sreq_on_mhost; then
        say "Open or Gridware Cluster Scheduler"
    elif knows daemon_forks_slaves; then
        say "Univa or Altair Grid Engine"
    elif knows qsort_args; then
        say "Son of Grid Engine"
    else
        say "Sun Grid Engine or Open Grid Scheduler"
    fi
}

# ---- the parallel environment ------------------------------------------------------------------------------

# setting NAME: the value of an attribute in tensorflow.pe.
setting() { awk -v name="$1" '$1 == name { print $2 }' "$settings"; }

# with_settings FILE: the PE in FILE, as qconf shows it, with all values that stand in tensorflow.pe.
with_settings() {
    awk -v pe="$pe" '
        /^[ \t]*(#|$)/ { next }
        { name = $1; sub(/^[ \t]*[^ \t]+[ \t]+/, "") }
        NR == FNR { value[name] = (name == "pe_name") ? pe : $0; next }
        { printf "%-20s %s\n", name, (name in value) ? value[name] : $0 }
    ' "$settings" "$1"
}

# compare_pe: set pe_state to absent, same or differs, and pe_differences. The PE as it is: $work/present, as
# it should be: $work/wanted.
compare_pe() {
    pe_state=absent pe_differences=''
    if ! qconf -sp "$pe" >"$work/present" 2>/dev/null; then
        with_settings "$work/template" >"$work/wanted"
        return
    fi
    with_settings "$work/present" >"$work/wanted"
    pe_differences=$(awk '
        { line = $1; for (i = 2; i <= NF; i++) line = line " " $i }
        NR == FNR { wanted[$1] = line; next }
        line != wanted[$1] { print "    " line ", should be: " wanted[$1] }
    ' "$work/wanted" "$work/present")
    if [ "$pe_differences" ]; then pe_state=differs; else pe_state=same; fi
}

# refuse_other_pe CURE: a PE that is not ours stays, unless --force.
refuse_other_pe() {
    if [ "$pe_state" = differs ] && [ ! "$force" ]; then
        refuse "the parallel environment '$pe' exists and differs:" "${pe_differences#    }
    $1"
    fi
}

install_pe() {
    case $pe_state in
        same) return ;;
        absent) change "add the parallel environment '$pe'" qconf -Ap "$work/wanted" ;;
        differs)
            keep "$work/present" "$pe.pe"
            change "replace the parallel environment '$pe'" qconf -Mp "$work/wanted"
            ;;
    esac
    [ ! "$dry_run" ] || sed 's/^/    /' "$work/wanted"
}

uninstall_pe() {
    [ "$pe_state" != absent ] || return 0
    leave_queues
    if [ "$elsewhere" ]; then
        say "note: the parallel environment '$pe' stays, these queues have it:$elsewhere"
        return
    fi
    [ "$pe_state" = same ] || keep "$work/present" "$pe.pe"
    change "remove the parallel environment '$pe'" qconf -dp "$pe" || return_to_queues
}

# ---- queues ------------------------------------------------------------------------------------------------

check_queues() {
    known=$(qconf -sql 2>/dev/null | paste -s -d ' ' -)
    [ "$known" ] || refuse "there is no queue yet" "Make one first: qconf -aq $default_queue"
    for queue in $queues; do
        case " $known " in
            *" $queue "*) ;;
            *) refuse "there is no queue '$queue'" "Name one of these with --queue: $known" ;;
        esac
    done
}

# pe_lists QUEUE: "DOMAIN PE..." for the queue itself and for each of its hosts and host groups that has a
# list of its own: `pe_list make,[node1=make smp]` of all.q gives "all.q make" and "all.q@node1 make smp".
pe_lists() {
    qconf -sq "$1" | awk -v queue="$1" '
        $1 == "pe_list" {
            sub(/^pe_list[ \t]+/, "")
            gsub(/\]/, "")
            count = split($0, list, /,[ \t]*\[/)
            print queue, list[1]
            for (i = 2; i <= count; i++) { sub(/=/, " ", list[i]); print queue "@" list[i] }
        }'
}

# domains QUEUE HAS: the domains of QUEUE that have the PE in their list (HAS is 1) or lack it (0).
domains() {
    pe_lists "$1" | awk -v pe="$pe" -v wanted="$2" '
        { has = 0; for (i = 2; i <= NF; i++) if ($i == pe) has = 1 }
        has == wanted { print $1 }'
}

join_queues() {
    for queue in $queues; do
        for domain in $(domains "$queue" 0); do
            if [ "$domain" = "$queue" ]; then
                change "add '$pe' to queue $queue" qconf -aattr queue pe_list "$pe" "$queue"
            else
                say "note: $domain has a pe_list of its own, without '$pe';" \
                    "to add it: qconf -aattr queue pe_list $pe $domain"
            fi
        done
    done
}

# leave_queues: take the PE out of the queues; set `taken` to where it was, `elsewhere` to where it still is.
leave_queues() {
    taken='' elsewhere=''
    for queue in $(qconf -sql 2>/dev/null); do
        for domain in $(domains "$queue" 1); do
            case " ${queues:-$queue} " in
                *" $queue "*)
                    change "take '$pe' out of queue $domain" qconf -dattr queue pe_list "$pe" "$domain"
                    taken="$taken $domain"
                    ;;
                *) elsewhere="$elsewhere $domain" ;;
            esac
        done
    done
}

return_to_queues() {
    for domain in $taken; do
        qconf -aattr queue pe_list "$pe" "$domain" >/dev/null
    done
    advise "It is back in its queues. If jobs need it, wait for them or end them with qdel, then try again."
}

# ---- the complex 'gpu' -------------------------------------------------------------------------------------

# gpu_entry: the line for 'gpu' in the complex list, with the columns that the list names: newer versions have
# more. RSMAP knows which GPUs a job gets, INT only how many. consumable YES: for each slot, in every flavour.
gpu_entry() {
    awk -v type="$gpu_type" '
        BEGIN {
            value["name"] = value["shortcut"] = "gpu"
            value["type"] = type
            value["relop"] = "<="
            value["requestable"] = value["consumable"] = "YES"
            value["default"] = value["urgency"] = value["affinity"] = 0
            value["aapre"] = "NO"  # a suspended job keeps its GPUs
        }
        /^#name / {
            sub(/^#/, "")
            for (i = 1; i <= NF; i++) {
                if (!($i in value)) exit
                $i = value[$i]
            }
            print
        }' "$work/complex"
}

# compare_gpu: set gpu_state to absent, same or differs. The complex list as it is: $work/complex, with our
# entry: $work/complex.with, without any: $work/complex.without.
compare_gpu() {
    qconf -sc >"$work/complex"
    if knows daemon_forks_slaves; then gpu_type=RSMAP; else gpu_type=INT; fi
    entry=$(gpu_entry)
    [ "$entry" ] || refuse "install.sh does not know these columns: $(head -n 1 "$work/complex")" \
        "Leave --gpu-complex out; add 'gpu' with qconf -mc: $gpu_type, <=, requestable and consumable YES."
    present=$(awk '$1 == "gpu"' "$work/complex")
    case $(say "$present" | awk '{ print $3, $4, $5, $6 }') in
        "$gpu_type <= YES YES") gpu_state=same ;;
        "   ") gpu_state=absent ;;
        *) gpu_state=differs ;;
    esac
    awk '$1 != "gpu"' "$work/complex" >"$work/complex.without"
    { cat "$work/complex.without"; say "$entry"; } >"$work/complex.with"
}

# refuse_other_gpu CURE: a complex 'gpu' that is not ours stays, unless --force.
refuse_other_gpu() {
    if [ "$gpu_state" = differs ] && [ ! "$force" ]; then
        is=$(say "$present" | awk '{ $1 = $1; print }')
        refuse "the complex 'gpu' exists and differs:" "$is, should be: $entry
    $1"
    fi
}

install_gpu() {
    case $gpu_state in
        same) return ;;
        absent) change "add 'gpu' to the complex list: $entry" qconf -Mc "$work/complex.with" ;;
        differs)
            keep "$work/complex" complex
            change "replace 'gpu' in the complex list: $entry" qconf -Mc "$work/complex.with"
            ;;
    esac
    if [ "$gpu_type" = RSMAP ]; then amount='gpu=2(0 1)'; else amount=gpu=2; fi
    say "note: tell each host what it has, for example: qconf -aattr exechost complex_values '$amount' HOST"
}

uninstall_gpu() {
    [ "$gpu_state" != absent ] || return 0
    [ "$gpu_state" = same ] || keep "$work/complex" complex
    change "remove 'gpu' from the complex list" qconf -Mc "$work/complex.without" ||
        advise "Take it out there first, for a host: qconf -dattr exechost complex_values gpu HOST"
}

# ---- command line ------------------------------------------------------------------------------------------

install() {
    : "${queues:=$default_queue}"
    check_queues
    refuse_other_pe "Use another name (--pe), or replace it with --force; the old one is kept."
    if [ "$gpu" ]; then
        refuse_other_gpu "Leave --gpu-complex out, or replace it with --force; the old list is kept."
        install_gpu
    fi
    install_pe
    join_queues
}

uninstall() {
    refuse_other_pe "It is not what install.sh installed; to remove it all the same use --force."
    if [ "$gpu" ]; then
        refuse_other_gpu "It is not what install.sh installed; leave --gpu-complex out or use --force."
        uninstall_gpu
    fi
    uninstall_pe
}

[ -r "$settings" ] || refuse "there is no $settings" "Keep install.sh and tensorflow.pe in one folder."
pe=$(setting pe_name) queues='' gpu='' force='' dry_run='' task=install
while [ $# -gt 0 ]; do
    case $1 in
        --pe | --queue)
            [ "${2:-}" ] || wrong_usage "$1 needs a value"
            if [ "$1" = --pe ]; then pe=$2; else queues="$queues $2"; fi
            shift
            ;;
        --gpu-complex) gpu=1 ;;
        --force) force=1 ;;
        --dry-run) dry_run=1 ;;
        --uninstall) task=uninstall ;;
        -h | --help) usage && exit ;;
        *) wrong_usage "unknown argument '$1'" ;;
    esac
    shift
done

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
changes=''
read_template
say "cluster: $(qconf -help | head -n 1) ($(flavour))"
compare_pe
[ ! "$gpu" ] || compare_gpu
if [ $task = install ]; then install; else uninstall; fi
[ "$changes" ] || say "nothing to do"
[ ! "$changes" ] || [ ! "$dry_run" ] || exit 3
