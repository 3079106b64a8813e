"""`python -m acceptance COMMAND`: see `acceptance.cli`."""

import sys

from acceptance.cli import main

sys.exit(main(sys.argv[1:]))
