"""A stand-in for qconf and the qmaster behind it, for the flavours of Grid Engine that tests cannot run.

It knows the calls that pe/install.sh makes and refuses all others. Messages and exit statuses are those of
Son of Grid Engine 8.1.9 (tests/cluster/test_install.py compares); the attributes of ocs are a real PE's,
those of sge, uge and age are put together from published configurations. The cluster is a dictionary (see
`new_cluster`) in the file that the variable FAKE_CLUSTER names. Each test runs it some ten times, hence no
import that takes long.
"""

import marshal
import os
import sys

BASIC = [
    *("pe_name", "slots", "user_lists", "xuser_lists", "start_proc_args", "stop_proc_args"),
    *("allocation_rule", "control_slaves", "job_is_first_task", "urgency_slots", "accounting_summary"),
]
DEFAULTS = {"slots": "0", "allocation_rule": "$pe_slots", "job_is_first_task": "TRUE", "urgency_slots": "min"}
FALSE_BY_DEFAULT = ("control_slaves", "accounting_summary", "forks_slaves", "on_mhost")
COLUMNS = ["name", "shortcut", "type", "relop", "requestable", "consumable", "default", "urgency"]

# Flavour: first line of qconf -help, attributes of a PE, columns of the complex list.
FLAVOURS = {
    "sge": ("SGE 6.2u5", BASIC, COLUMNS),
    "soge": ("SGE 8.1.9", [*BASIC, "qsort_args"], COLUMNS),
    "uge": ("UGE 8.4.2", [*BASIC, "daemon_forks_slaves", "master_forks_slaves"], [*COLUMNS, "aapre"]),
    "age": (
        "AGE 8.8.1",
        [*BASIC[:2], "used_slots", "bound_slots", *BASIC[2:], "daemon_forks_slaves", "master_forks_slaves"]
        + ["per_pe_task_prolog", "per_pe_task_epilog"],
        [*COLUMNS, "aapre", "affinity"],
    ),
    "ocs": (
        "OCS 9.1.4",
        [*BASIC, "ign_sreq_on_mhost", "master_forks_slaves", "daemon_forks_slaves"],
        COLUMNS,
    ),
}


def new_cluster(flavour):
    """A cluster with the queue all.q: what there is, and the calls so far."""
    product, attributes, columns = FLAVOURS[flavour]
    further = "".join([" YES", " 0.000000"][: len(columns) - len(COLUMNS)])
    return {
        "product": product,
        "attributes": attributes,
        "columns": columns,
        "types": ["INT", "STRING"] + ["RSMAP"] * (flavour in ("uge", "age", "ocs")),
        "denied": "",  # why changes are refused
        "pes": {},
        "queues": {"all.q": {"all.q": []}},  # PEs of the queue and of its domains
        "complexes": {
            "arch": f"arch a STRING == YES NO NONE 0{further}",
            "slots": f"slots s INT <= YES YES 1 1000{further}",
        },
        "host_resources": {},  # host: names of complexes
        "jobs": {},  # id: PE
        "calls": [],
        "unknown": [],
    }


def load(path):
    with open(path, "rb") as file:
        return marshal.load(file)


def save(cluster, path):
    with open(path, "wb") as file:
        marshal.dump(cluster, file)


class QconfError(Exception):
    """What qconf says on stderr before it ends with status 1."""


def template(cluster, name):
    return {key: name if key == "pe_name" else DEFAULTS.get(key, none(key)) for key in cluster["attributes"]}


def none(attribute):
    if attribute.endswith(FALSE_BY_DEFAULT):
        return "FALSE"
    return "0" if attribute.endswith("_slots") else "NONE"


def shown(pe):
    return "".join(f"{key:<18} {value}\n" for key, value in pe.items())


def rows(path):
    with open(path) as file:
        return [line.split(None) for line in file if line.split("#")[0].strip()]


def read_pe(cluster, path):
    pe = {key: " ".join(value) for key, *value in rows(path)}
    for key in pe:
        if key not in cluster["attributes"]:
            raise QconfError(
                f'error: unknown attribute name "{key}"\n'
                f'error: error reading file: "{path}"\nerror reading in file'
            )
    for key in cluster["attributes"]:
        if key not in pe:
            raise QconfError(f'error: required attribute "{key}" is missing\nerror reading in file')
    return pe


def edit_pe(cluster, name):
    path = f"{os.environ['FAKE_CLUSTER']}.edit"
    with open(path, "w") as file:
        file.write(shown(template(cluster, name)))
    failed = os.spawnlp(os.P_WAIT, os.environ["EDITOR"], os.environ["EDITOR"], path)
    with open(path) as file:
        edited = file.read() != shown(template(cluster, name))
    raise QconfError("fake qconf: editing is not supported" if failed or edited else "file unchanged")


def add_pe(cluster, path):
    pe = read_pe(cluster, path)
    if pe["pe_name"] in cluster["pes"]:
        raise QconfError(f'parallel environment "{pe["pe_name"]}" already exists')
    cluster["pes"][pe["pe_name"]] = pe


def replace_pe(cluster, path):
    pe = read_pe(cluster, path)
    if pe["pe_name"] not in cluster["pes"]:
        raise QconfError(f'denied: parallel environment "{pe["pe_name"]}" does not exist')
    cluster["pes"][pe["pe_name"]] = pe


def delete_pe(cluster, name):
    for job, wanted in cluster["jobs"].items():
        if wanted == name:
            raise QconfError(f'denied: Parallel environment "{name}" is still referenced in job {job}.')
    for queue, lists in cluster["queues"].items():
        if any(name in pes for pes in lists.values()):
            raise QconfError(f'denied: Parallel environment "{name}" is still referenced in queue "{queue}".')
    if cluster["pes"].pop(name, None) is None:
        raise QconfError(f'denied: parallel environment "{name}" does not exist')


def show_pe(cluster, name):
    if name not in cluster["pes"]:
        raise QconfError(f"{name} is not a parallel environment")
    return shown(cluster["pes"][name])


def list_queues(cluster):
    if not cluster["queues"]:
        raise QconfError("no cqueue list defined")
    return "".join(f"{queue}\n" for queue in cluster["queues"])


def show_queue(cluster, name):
    if name not in cluster["queues"]:
        raise QconfError(f'No cluster queue or queue instance matches the phrase "{name}"')
    lists = {domain: " ".join(pes) or "NONE" for domain, pes in cluster["queues"][name].items()}
    value = lists.pop(name) + "".join(f",[{key.partition('@')[2]}={pes}]" for key, pes in lists.items())
    return f"qname                 {name}\npe_list               {value}\nrerun                 FALSE\n"


def queue_list(cluster, kind, attribute, pe, domain):
    queue = domain.partition("@")[0]
    if (kind, attribute) != ("queue", "pe_list") or domain not in cluster["queues"].get(queue, {}):
        raise QconfError(f'denied: cluster queue "{domain}" does not exist')
    if pe not in cluster["pes"]:
        raise QconfError(f'Parallel environment "{pe}" does not exist')
    return cluster["queues"][queue][domain]


def add_to_queue(cluster, *words):
    queue_list(cluster, *words).append(words[2])


def take_from_queue(cluster, *words):
    queue_list(cluster, *words).remove(words[2])


def show_complexes(cluster):
    header = "#" + " ".join(cluster["columns"])
    footer = "# >#< starts a comment but comments are not saved across edits --------\n"
    return "\n".join([header, *cluster["complexes"].values(), footer])


def replace_complexes(cluster, path):
    for row in rows(path):
        if len(row) != len(cluster["columns"]):
            raise QconfError("error: wrong number of columns")
        if row[2] not in cluster["types"]:
            raise QconfError(
                f'error: unknown complex attribute type "{row[2]}"\n'
                f'Complex attribute file "{path}" is not correct'
            )
    complexes = {row[0]: " ".join(row) for row in rows(path)}
    for host, names in cluster["host_resources"].items():
        for name in names:
            if name not in complexes:
                raise QconfError(f'denied: Complex attribute "{name}" is still referenced in host "{host}".')
    cluster["complexes"] = complexes


def show_help(cluster):
    return f"{cluster['product']}\nusage: qconf [options]\n"


# Option: what it does and the number of its arguments.
CALLS = {
    "-help": (show_help, 0),
    "-ap": (edit_pe, 1),
    "-Ap": (add_pe, 1),
    "-Mp": (replace_pe, 1),
    "-dp": (delete_pe, 1),
    "-sp": (show_pe, 1),
    "-sql": (list_queues, 0),
    "-sq": (show_queue, 1),
    "-aattr": (add_to_queue, 4),
    "-dattr": (take_from_queue, 4),
    "-sc": (show_complexes, 0),
    "-Mc": (replace_complexes, 1),
}
CHANGING = ("-ap", "-Ap", "-Mp", "-dp", "-aattr", "-dattr", "-Mc")


def main(option, *words):
    cluster = load(os.environ["FAKE_CLUSTER"])
    cluster["calls"].append([option, *words])
    call, number = CALLS.get(option, (None, 0))
    try:
        if call is None or len(words) != number:
            cluster["unknown"].append([option, *words])
            raise QconfError("fake qconf: unknown call")
        if cluster["denied"] and option in CHANGING:
            raise QconfError(cluster["denied"])
        sys.stdout.write(call(cluster, *words) or "")
    except QconfError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    finally:
        save(cluster, os.environ["FAKE_CLUSTER"])
    return 0
