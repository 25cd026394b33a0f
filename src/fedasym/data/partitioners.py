"""`partition`: one table of samples dealt out to clients by the laws of the federated literature.

Label shift of a known strength, or clients that differ in size alone, in a column's values, or not
at all. What cannot be dealt follows a stated rule or ends in a sentence, and is never drawn again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedasym.core.errors import InvalidInput, find_entry
from fedasym.core.numbers import check_seed, one_float, whole
from fedasym.data.federation import Federation
from fedasym.data.splits import FRACTIONS, are_fractions
from fedasym.data.synthesis import sample_counts
from fedasym.exact.draws import allocate_images, apportion, log_gamma, seeded_generator

LEAST = 3  # samples of a client: one to train on, one to validate, one to test
ORDER, SHARES, LABEL_DRAWS, MOVES = range(4)  # roles in a path of seeds
DEFAULTS = {"pachinko": 0.1}  # alpha; 0.5 elsewhere
NOBODY = -1  # the owner of a sample that no client gets

Owner = NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Deal:
    """What a law deals out: every sample's class (None: numbers), to how many clients, and how.

    alpha: of Dirichlet laws. samples: of each client, where the law fixes them. shards, classes:
    of each client. column: every sample's value. coarse: every class's coarse class.
    """

    codes: NDArray[np.int64] | None
    rows: int
    clients: int
    alpha: float
    samples: NDArray[np.intp] | None
    shards: int
    classes: int
    column: NDArray[Any] | None
    coarse: NDArray[np.int64] | None
    seed: int

    def labels(self, how: str) -> NDArray[np.int64]:
        """The classes, which this law needs."""
        if self.codes is None:
            raise InvalidInput(
                f"how is {how!r}, which deals out classes, and the labels are numbers: use iid,"
                " quantity or column, or give task='classification'"
            )
        return self.codes

    def by_class(self, how: str) -> list[NDArray[np.intp]]:
        """The samples of every class, shuffled."""
        codes = self.labels(how)
        order = seeded_generator(self.seed, ORDER).permutation(self.rows)
        sorted_ = order[np.argsort(codes[order], kind="stable")]
        return np.split(sorted_, np.cumsum(np.bincount(codes))[:-1])


def deal_iid(deal: Deal) -> Owner:
    """Samples at random, as many for each client as for any other, within one."""
    sizes = np.full(deal.clients, deal.rows // deal.clients)
    sizes[: deal.rows % deal.clients] += 1
    return deal_sizes(deal, sizes if deal.samples is None else deal.samples)


def deal_sizes(deal: Deal, sizes: NDArray[np.intp]) -> Owner:
    """So many samples for each client, at random; what is left over is nobody's."""
    owner = np.full(deal.rows, NOBODY, np.intp)
    order = seeded_generator(deal.seed, ORDER).permutation(deal.rows)[: int(sizes.sum())]
    owner[order] = np.repeat(np.arange(deal.clients), sizes)
    return owner


def deal_quantities(deal: Deal) -> Owner:
    """Clients' shares of all samples are one draw of a symmetric Dirichlet law; classes are not
    looked at.
    """
    shares = dirichlet_shares(deal.alpha, deal.clients, seeded_generator(deal.seed, SHARES))
    return deal_sizes(deal, apportion(shares, deal.rows))


def deal_dirichlet(deal: Deal) -> Owner:
    """Label shift by a Dirichlet law, of classes over clients or, with `samples`, of each client.

    Without `samples`, the samples of every class are divided among the clients by one draw of
    Dirichlet(alpha, ..., alpha) over clients: sizes vary (Yurochkin et al. 2019). With `samples`,
    every client draws shares of Dirichlet(alpha, ..., alpha) over classes and takes its samples by
    them (Hsu, Qi, Brown 2019); a class that has none left is struck out, the rest renormalised.
    """
    if deal.samples is not None:
        return draw_mixtures(deal)
    owner = np.empty(deal.rows, np.intp)
    rng = seeded_generator(deal.seed, SHARES)
    for rows in deal.by_class("dirichlet"):
        shares = dirichlet_shares(deal.alpha, deal.clients, rng)
        owner[rows] = np.repeat(np.arange(deal.clients), apportion(shares, len(rows)))
    return owner


def draw_mixtures(deal: Deal) -> Owner:
    """Client by client: labels by its shares, drawn again where a class has too few samples left,
    which is the same as striking a class out as soon as it is empty.
    """
    stock = [rows.tolist() for rows in deal.by_class("dirichlet")]
    left = np.array([len(rows) for rows in stock])
    owner = np.full(deal.rows, NOBODY, np.intp)
    assert deal.samples is not None
    for client, wanted in enumerate(deal.samples.tolist()):
        size = wanted
        rng = seeded_generator(deal.seed, LABEL_DRAWS, client)
        weights = log_gamma(deal.alpha, len(stock), rng)
        while size:  # at least one class runs out each time, or nothing is left to draw
            weights[left == 0] = -np.inf
            shares = np.exp(weights - weights.max())
            taken = np.minimum(rng.multinomial(size, shares / shares.sum()), left)
            left = left - taken
            size -= int(taken.sum())
            for kind in np.flatnonzero(taken):
                rows = stock[kind]
                owner[rows[-taken[kind] :]] = client
                del rows[-taken[kind] :]
    return owner


def deal_shards(deal: Deal) -> Owner:
    """Samples sorted by class and cut into clients x shards equal pieces, of which every client is
    given `shards` at random (McMahan et al. 2017); what is left over at the end is nobody's.
    """
    pieces = deal.clients * deal.shards
    if pieces > deal.rows:
        raise InvalidInput(
            f"{deal.clients} clients of {deal.shards} shards need {pieces} samples and there are"
            f" {deal.rows}: give fewer clients or shards"
        )
    size = deal.rows // pieces
    sorted_ = np.concatenate(deal.by_class("shards"))[: size * pieces]
    order = seeded_generator(deal.seed, SHARES).permutation(pieces)
    owner = np.full(deal.rows, NOBODY, np.intp)
    owner[sorted_] = np.repeat(order // deal.shards, size)
    return owner


def deal_classes(deal: Deal) -> Owner:
    """Every client has `classes` classes; a class is divided evenly among those that have it.

    Client i begins with class i modulo their number, so that every class has an owner where
    clients are enough, and draws the others at random.
    """
    stock = deal.by_class("classes")
    present = np.flatnonzero([len(rows) for rows in stock])
    if deal.classes > present.size:
        raise InvalidInput(
            f"classes_per_client is {deal.classes}, and there are {present.size} classes: give at"
            " most that many"
        )
    rng = seeded_generator(deal.seed, SHARES)
    has = np.zeros((deal.clients, present.size), bool)
    for client in range(deal.clients):
        first = client % present.size
        others = np.delete(np.arange(present.size), first)
        has[client, [first, *rng.choice(others, deal.classes - 1, replace=False)]] = True
    owner = np.full(deal.rows, NOBODY, np.intp)
    for place, kind in enumerate(present.tolist()):
        owners = np.flatnonzero(has[:, place]).tolist()
        for client, part in zip(
            owners, np.array_split(stock[kind], max(len(owners), 1))[: len(owners)], strict=True
        ):
            owner[part] = client
    return owner


def deal_column(deal: Deal) -> Owner:
    """A client for every value of a column, in the order of first appearance."""
    if deal.column is None:
        raise InvalidInput(
            "how is 'column': give by, one value per sample, whose values are clients"
        )
    _, first, inverse = np.unique(deal.column, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[inverse]


def deal_pachinko(deal: Deal) -> Owner:
    """Mixtures of coarse classes, and of the fine classes of each (Li, McCallum 2006; Reddi et al.
    2021): `alpha` for the coarse ones, 10 for the fine.
    """
    codes = deal.labels("pachinko")
    if deal.coarse is None or deal.coarse.shape != (int(codes.max()) + 1,):
        raise InvalidInput(
            "how is 'pachinko': give coarse, the coarse class of every class, a whole number each,"
            f" for {int(codes.max()) + 1} classes"
        )
    n = deal.rows // deal.clients if deal.samples is None else int(deal.samples.min())
    chosen = allocate_images(
        codes, deal.coarse, clients=deal.clients, samples=n, root=deal.alpha, seed=deal.seed
    )
    owner = np.full(deal.rows, NOBODY, np.intp)
    owner[chosen] = np.arange(deal.clients)[:, None]
    return owner


# each law, and what it takes beside clients and seed
LAWS: dict[str, tuple[Callable[[Deal], Owner], tuple[str, ...]]] = {
    "dirichlet": (deal_dirichlet, ("alpha", "samples")),
    "iid": (deal_iid, ("samples",)),
    "shards": (deal_shards, ("shards",)),
    "classes": (deal_classes, ("classes_per_client",)),
    "quantity": (deal_quantities, ("alpha",)),
    "column": (deal_column, ("by",)),
    "pachinko": (deal_pachinko, ("alpha", "samples", "coarse")),
}


def dirichlet_shares(alpha: float, size: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """One draw of Dirichlet(alpha, ..., alpha), by logarithms: none underflows at small alpha."""
    weights = log_gamma(alpha, size, rng)
    shares = np.exp(weights - weights.max())
    return np.asarray(shares / shares.sum())


def move_to_least(owner: Owner, clients: int, least: int, seed: int) -> Owner:
    """Clients below `least` samples are given random ones that are nobody's, then of whoever has
    the most at that moment. It ends: while one has fewer than `least`, another has more.

    >>> np.bincount(move_to_least(np.array([0, 0, 0, 0, 0, 1]), 3, 2, seed=0)).tolist()
    [2, 2, 2]
    """
    owner = owner.copy()
    sizes = np.bincount(owner[owner != NOBODY], minlength=clients)
    free = int(np.sum(owner == NOBODY))
    rng = seeded_generator(seed, MOVES)
    for client in np.flatnonzero(sizes < least):
        while sizes[client] < least:
            giver = NOBODY if free else int(np.argmax(sizes))
            room = free if free else max((sizes[giver] - least) // 2, 1)
            some = min(int(least - sizes[client]), int(room))
            owner[rng.choice(np.flatnonzero(owner == giver), some, replace=False)] = client
            sizes[client] += some
            if free:
                free -= some
            else:
                sizes[giver] -= some
    return owner


def partition(
    X: Any,
    y: ArrayLike | None = None,
    how: str = "dirichlet",
    *,
    clients: int | None = None,
    alpha: float | None = None,
    samples: int | ArrayLike | None = None,
    shards: int | None = None,
    classes_per_client: int | None = None,
    by: ArrayLike | None = None,
    coarse: ArrayLike | None = None,
    least: int = LEAST,
    split: Any = None,
    seed: int = 0,
    **options: Any,
) -> Federation:
    """One table of samples dealt out to clients 0, 1, ...; the same seed gives the same clients.

    X, y: features and labels, one row per sample; or X a `Federation` whose samples are pooled and
        dealt out anew, each staying a training, validation or test sample.
    how: "dirichlet": p_c ~ Dirichlet(alpha, ..., alpha) over clients for every class c; with
        `samples`, p_i ~ Dirichlet(alpha, ..., alpha) over classes for every client i. "shards":
        sorted by class and cut, `shards` pieces each. "classes": `classes_per_client` classes each.
        "quantity": sizes ~ Dirichlet(alpha, ..., alpha), classes alike. "iid". "column": a client
        per value of `by`. "pachinko": mixtures of coarse classes (`alpha`, 0.1) and of their fine
        ones; `coarse` has the coarse class of every class.
    clients: how many; 10 unless given. alpha: 0.5 unless given; small is uneven.
    samples: of each client, one number or one per client.
    least: clients that are dealt fewer samples are given random ones of the client that has the
        most at that moment; 0 leaves them out instead if they have none.
    split: fractions, or one value per sample, as in `Federation.from_arrays`, whose further options
        are `options`.

    >>> import numpy as np, fedasym as fa
    >>> labels = np.arange(1000) % 10
    >>> clients = fa.datasets.partition(np.eye(10)[labels], labels, alpha=0.1, clients=20, seed=1)
    >>> len(clients), int(np.diff(clients.starts).sum()), bool(np.diff(clients.starts).min() >= 3)
    (20, 1000, True)
    """
    law, taken = find_entry("how", how, LAWS)
    given: dict[str, Any] = {
        "alpha": alpha,
        "samples": samples,
        "shards": shards,
        "classes_per_client": classes_per_client,
        "by": by,
        "coarse": coarse,
    }
    for name, value in given.items():
        if value is not None and name not in taken:
            others = [each for each, (_, takes) in LAWS.items() if name in takes]
            raise InvalidInput(
                f"{name} is given, but {how} takes {', '.join(taken)}: leave it out, or use"
                f" {' or '.join(others)}"
            )
    pool = pool_samples(X, y, split, seed, options)
    m = whole("clients", 10 if clients is None else clients, 1)
    rows = len(pool.owner)
    column = None if by is None else np.asarray(by)
    if column is not None:
        if column.shape != (rows,):
            raise InvalidInput(
                f"by has shape {column.shape}: give one value for each of {rows} samples"
            )
        m = len(np.unique(column))
    least = whole("least", least, 0)
    if m * least > rows:
        raise InvalidInput(
            f"{m} clients of at least {least} samples need {m * least}, and there are {rows}: give"
            " fewer clients, or a smaller least"
        )
    deal = Deal(
        None if pool.classes is None or pool.sequences else pool.labels,
        rows,
        m,
        check_alpha(DEFAULTS.get(how, 0.5) if alpha is None else alpha),
        None if samples is None else client_sizes(samples, m, rows),
        2 if shards is None else whole("shards", shards, 1),
        2 if classes_per_client is None else whole("classes_per_client", classes_per_client, 1),
        column,
        None if coarse is None else np.asarray(coarse, dtype=np.int64),
        check_seed(seed),
    )
    owner = law(deal)
    if by is None and samples is None:
        owner = move_to_least(owner, m, least, deal.seed)
    dealt = assign_rows(pool, owner)
    kept = split is None and pool is X  # samples of a federation stay what they are
    if kept or (split is not None and not are_fractions(split, rows)):
        return dealt
    fractions = FRACTIONS if split is None else split
    return dealt.resplit(deal.seed, keep_test=False, fractions=fractions)


def check_alpha(alpha: Any) -> float:
    """The parameter of a Dirichlet law."""
    value = one_float(alpha)
    if not (np.isfinite(value) and value > 0):
        raise InvalidInput(
            f"alpha is {alpha!r}: it is the parameter of a Dirichlet law and must be finite and"
            " above 0"
        )
    return value


def client_sizes(samples: Any, clients: int, rows: int) -> NDArray[np.intp]:
    """Each client's number of samples, which together there are."""
    sizes = sample_counts(samples, clients)
    if sizes.sum() > rows:
        raise InvalidInput(
            f"samples ask for {sizes.sum()} in all, and there are {rows}: give fewer clients or"
            " samples"
        )
    return sizes


def pool_samples(X: Any, y: Any, split: Any, seed: int, options: Mapping[str, Any]) -> Federation:
    """The samples as the federation of a single client."""
    if not isinstance(X, Federation):
        if y is None:
            raise InvalidInput("y is missing: give one label per sample, or a federation for X")
        whose = np.zeros(len(np.asarray(y)), dtype=int)
        dealt = FRACTIONS if split is None else split
        return Federation.from_arrays(X, y, whose, split=dealt, seed=seed, **options)
    if y is not None or options:
        extra = "y" if y is not None else next(iter(options))
        raise InvalidInput(f"{extra} is given, but a federation has it already: leave it out")
    return X


def assign_rows(pool: Federation, owner: Owner) -> Federation:
    """The pool's rows by their new owners; clients without samples are left out."""
    order = np.argsort(owner, kind="stable")
    order = order[owner[order] != NOBODY]
    names, fresh = np.unique(owner[order], return_inverse=True)
    return replace(
        pool,
        features=pool.features[order],
        labels=pool.labels[order],
        clients=tuple(names.tolist()),
        owner=fresh,
        split=pool.split[order],
        mask=None if pool.mask is None else pool.mask[order],
        truth=None,
    )
