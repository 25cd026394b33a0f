"""A Flower ClientApp that says of its failures nothing but a code: the words stay in the node's own log."""

from __future__ import annotations

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from fedasym.core.version import __version__
from fedasym.deploy.flower.answers import log
from fedasym.deploy.flower.faults import FAULT, VERSION, find_fault
from fedasym.deploy.flower.records import content_of


class NodeApp(ClientApp):
    """Whatever its functions raise becomes a reply with a code of `Fault`; mods and lifespans are covered too.

    Flower itself would send the text of an exception to the server.

    >>> app = NodeApp()
    >>> @app.query()
    ... def ask(message: Message, context: Context) -> Message:
    ...     raise ValueError("row 5 holds 'ill'")
    """

    def __call__(self, message: Message, context: Context) -> Message:
        """Answer a message; only what ends the process is let through, of which Flower sends no words."""
        try:
            return super().__call__(message, context)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as reason:  # a panic of a library in another language is no Exception
            fault = find_fault(reason)
            log.error("This node replies with the code %s. What it keeps to itself:", fault.value, exc_info=reason)
        return Message(content_of(config={FAULT: fault.value, VERSION: __version__}), reply_to=message)
