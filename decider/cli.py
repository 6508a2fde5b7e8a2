"""The command line: `decider ask`, `decider serve`, `decider check`, `decider report`.

A command is a function that adds its parser to the others and sets `run`, which takes the parsed arguments and returns
the exit code: 0, or 2 for what cannot be done as asked; `check` returns 1 for a model that cannot be relied on.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from decider.checkup import check_folder
from decider.errors import DeciderError, MissingPackageError
from decider.manifest import MODEL_FILE
from decider.model import SHIPPED_MODEL, Decider
from decider.options import add_processor, seconds, whole_number
from decider.protocol import DecisionModel
from decider.questions import QuestionLike, read_questions
from decider.report.command import add_report
from decider.strict_json import read_json
from decider.wire import KEY_VARIABLE, key_of_environment, write_response

if TYPE_CHECKING:
    Parsers: TypeAlias = argparse._SubParsersAction[argparse.ArgumentParser]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; errors that say what to do go to standard error, without a traceback."""
    options = make_parser().parse_args(arguments)
    try:
        run: Callable[[argparse.Namespace], int] = options.run
        return run(options)
    except (DeciderError, OSError, ValueError) as error:
        sys.stderr.write(f"decider: {error}\n")
        return 2


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    parser = argparse.ArgumentParser(prog="decider", description="Typed questions, answered by a decision model.")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for add in COMMANDS:
        add(commands)
    return parser


def add_ask(commands: Parsers) -> None:
    """Add `decider ask`."""
    parser = commands.add_parser("ask", help="ask questions about a text and print the answers as JSON")
    parser.add_argument("state", help="the text; - reads it from standard input")
    parser.add_argument(
        "--noul", action="append", default=[], metavar="TEXT", help="a yes/no question; may be repeated"
    )
    parser.add_argument("--questions", type=Path, metavar="FILE", help="questions by id, as JSON in their wire form")
    parser.add_argument("--url", help=f"ask this endpoint, not the model here; its key is read from {KEY_VARIABLE}")
    _add_model(parser)
    parser.set_defaults(run=ask)


def ask(options: argparse.Namespace) -> int:
    """Ask and print the response that a server would give."""
    questions: dict[str, QuestionLike] = {text: {"type": "noul", "instructions": text} for text in options.noul}
    if options.questions is not None:
        questions |= _questions_in(options.questions)
    state = sys.stdin.read() if options.state == "-" else options.state
    with _opened(options) as model:
        answers = model.decide(state, read_questions(questions))
    sys.stdout.write(json.dumps(write_response(answers), indent=2, ensure_ascii=False, allow_nan=False) + "\n")
    return 0


def add_serve(commands: Parsers) -> None:
    """Add `decider serve`."""
    parser = commands.add_parser("serve", help="answer POST /v1/systemone over HTTP")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen at (127.0.0.1: this machine alone)")
    parser.add_argument("--port", type=whole_number(0, 65535), default=8000)
    parser.add_argument("--without-key", action="store_true", help="serve other machines without asking for a key")
    parser.add_argument(
        "--body-limit", type=whole_number(1), default=1 << 18, metavar="BYTES", help="longest body (256 KiB)"
    )
    parser.add_argument(
        "--body-time", type=seconds, default=10.0, metavar="SECONDS", help="how long a body may take to arrive (10)"
    )
    parser.add_argument(
        "--grace", type=whole_number(0), default=30, metavar="SECONDS", help="how long stopping may take (30)"
    )
    _add_model(parser)
    parser.set_defaults(run=serve)


def serve(options: argparse.Namespace) -> int:
    """Serve until stopped. The key is read from the environment, where other users of the machine cannot see it."""
    try:
        from decider.serve import ModelCard, ServerLimits, create_app, run_server
        from decider.stream import CPU_PASS, CUDA_PASS
    except ImportError as error:
        raise MissingPackageError(
            error.name or "starlette", "it is needed to serve", "Install it: pip install -e '.[decider,serve]'"
        ) from error
    key = key_of_environment()
    if key is None and not options.without_key and not _is_local(options.host):
        raise DeciderError(
            f"{options.host} can be reached from other machines and no key is set: set {KEY_VARIABLE}, "
            "or say --without-key"
        )
    decider = Decider.load(options.model, options.provider, options.threads)
    on_gpu = decider.provider == "cuda"
    limits = ServerLimits(
        body_bytes=options.body_limit,
        body_seconds=options.body_time,
        pass_cells=CUDA_PASS if on_gpu else CPU_PASS,
        pass_waste=1.0 if on_gpu else ServerLimits().pass_waste,
    )
    card = ModelCard(decider.manifest.name, f"Decision model on {decider.provider}", _released(decider))
    run_server(create_app(decider, card, key, limits), options.host, options.port, options.grace)
    return 0


def add_check(commands: Parsers) -> None:
    """Add `decider check`."""
    parser = commands.add_parser("check", help="look into a model folder and ask its golden requests")
    parser.add_argument("folder", type=Path, nargs="?", default=SHIPPED_MODEL, help="the model that comes with this")
    add_processor(parser)
    parser.set_defaults(run=check)


def check(options: argparse.Namespace) -> int:
    """Print what the folder is; 1 where it does not answer as it should."""
    found = check_folder(options.folder, options.provider, options.threads)
    sys.stdout.write("\n".join(found.lines) + "\n")
    for fault in found.faults:
        sys.stderr.write(f"decider: {fault}\n")
    return 1 if found.faults else 0


COMMANDS: tuple[Callable[[Parsers], None], ...] = (add_ask, add_serve, add_check, add_report)


def _add_model(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--model", type=Path, metavar="FOLDER", help="model folder (the one that comes with the package)"
    )
    add_processor(parser)


def _opened(options: argparse.Namespace) -> AbstractContextManager[DecisionModel]:
    if options.url is None:
        return nullcontext(Decider.load(options.model, options.provider, options.threads))
    try:
        from decider.client import RemoteDecider
    except ImportError as error:
        raise MissingPackageError(
            "httpx", "it is needed to ask an endpoint", "Install it: pip install -e '.[decider,client]'"
        ) from error
    return RemoteDecider(options.url)


def _questions_in(path: Path) -> Mapping[str, QuestionLike]:
    """Read a file of questions; what they hold is checked when they are asked."""
    try:
        questions = read_json(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise DeciderError(f"{path} is not JSON that can be read: {error}") from error
    if not isinstance(questions, dict):
        raise DeciderError(f"{path} holds a {type(questions).__name__}: write an object, question id to question")
    return questions


def _is_local(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _released(decider: Decider) -> str:
    """Return the day of the model; for a folder that does not say, that of its file."""
    changed = (decider.folder / MODEL_FILE).stat().st_mtime
    return decider.manifest.released or datetime.fromtimestamp(changed, UTC).date().isoformat()


if __name__ == "__main__":
    raise SystemExit(main())
