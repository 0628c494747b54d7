"""Shows what a task was started with, as one line of JSON."""

import json
import os
import sys

found = {
    "arguments": sys.argv[1:],
    "script": sys.argv[0],
    "folder": os.getcwd(),
    "python": sys.executable,
    "config": json.loads(os.environ["TF_CONFIG"]),
    "environment": dict(os.environ),
}
print(json.dumps(found), flush=True)
