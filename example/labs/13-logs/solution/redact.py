"""Takes tokens out of what is logged."""

import logging
import re

TOKEN = re.compile(r"\btok_[0-9a-f]+")


class Redacts(logging.Filter):
    """Has no record with a token in it; it drops none."""

    def filter(self, record):
        record.msg, record.args = TOKEN.sub("<redacted>", record.getMessage()), ()
        return True


def set_up():
    """Has this process log no token."""
    make, redacts = logging.getLogRecordFactory(), Redacts()

    def make_redacted(*args, **kwargs):
        record = make(*args, **kwargs)
        redacts.filter(record)
        return record

    logging.setLogRecordFactory(make_redacted)
