"""The worked numbers: aspect 2, radius 1 and noise variance 1/2 unless said otherwise."""

from __future__ import annotations

import pytest
from scipy.optimize import minimize_scalar

import fedasym as fa

from .settings import EXAMPLE, HALF, SPECTRA, close, shows


def test_worked_numbers_of_the_limit() -> None:
    """Uncorrelated: FedAvg 1, FTFA 1 (on its threshold), RTFA* = pFedMe* = 0.70711 at ridge 1,
    stopped flow 0.71162.
    """
    table = fa.predict(EXAMPLE)
    close([table["fedavg"].loss, table["ftfa"].loss], 1)
    close(fa.noise_threshold(EXAMPLE), HALF)
    close([table["rtfa"].ridge, table["pfedme"].ridge], 1)
    close([table["rtfa"].loss, table["pfedme"].loss], 0.5**0.5)
    stop = fa.fine_tuning(EXAMPLE, flow=True).best
    shows(stop.at, "0.6185")
    shows(stop.scores.loss, "0.71162")


@pytest.mark.parametrize(
    ("name", "losses"),
    [
        ("two_atom", {"fedavg": "1.5000000000", "ftfa": "1.2000000000", "rtfa": "0.81183"}),
        ("ar1", {"fedavg": "1.0000000000", "ftfa": "0.9974", "rtfa": "0.60763"}),
    ],
)
def test_worked_numbers_with_correlation(name: str, losses: dict[str, str]) -> None:
    """FedAvg, FTFA and RTFA at its best."""
    table = fa.predict(fa.Population(1, HALF, 2, spectrum=SPECTRA[name]), list(losses))
    for algorithm, digits in losses.items():
        shows(table[algorithm].loss, digits)


@pytest.mark.parametrize(
    ("member", "losses"),
    [
        (
            True,
            {
                "fedavg": "1.2500000000",
                "ftfa": "1.2500000000",
                "rtfa": "1.0016",
                "maml": "1.2214",
                "pfedme": "0.96353",
            },
        ),
        (
            False,
            {
                "fedavg": "1.4500000000",
                "ftfa": "1.2250000000",
                "rtfa": "0.9787",
                "maml": "1.1992",
                "pfedme": "0.9441",
            },
        ),
    ],
    ids=["member", "new"],
)
def test_worked_numbers_of_ten_clients(member: bool, losses: dict[str, str]) -> None:
    """All at ridge 1, MAML with step 0.1."""
    table = fa.predict(EXAMPLE, list(losses), ridge=1, maml_step=0.1, clients=10, member=member)
    for algorithm, digits in losses.items():
        shows(table[algorithm].loss, digits)


@pytest.mark.parametrize(
    ("clients", "fedavg", "pfedme"),
    [(2, "3.3000", "2.8781"), (100, "1.0093", "0.5530"), (None, "1.0000", "0.5432")],
)
def test_worked_numbers_from_two_clients_to_infinity(
    clients: int | None, fedavg: str, pfedme: str
) -> None:
    """Aspect 1.6, noise variance 0.2: FedAvg, and pFedMe at lam* = 0.32."""
    table = fa.predict(fa.Population(1, 0.2**0.5, 1.6), ["fedavg", "pfedme"], clients=clients)
    close(table["pfedme"].ridge, 0.32)
    shows(table["fedavg"].loss, fedavg)
    shows(table["pfedme"].loss, pfedme)


@pytest.mark.parametrize(("clients", "maml", "ftfa"), [(4, "1.918", 2.0), (10, "1.221", 1.25)])
def test_worked_numbers_of_the_best_maml_step(clients: int, maml: str, ftfa: float) -> None:
    """The best step is about 0.1, where MAML's weights imitate those of pFedMe."""

    def loss(alpha: float) -> float:
        return fa.predict(EXAMPLE, "maml", maml_step=alpha, clients=clients)["maml"].loss

    found = minimize_scalar(loss, bounds=(0, 0.5), method="bounded")
    shows(found.x, "0.1")
    shows(found.fun, maml)
    close(fa.predict(EXAMPLE, "ftfa", clients=clients)["ftfa"].loss, ftfa)
