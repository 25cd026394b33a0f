"""FedProx (Li et al. 2020) as a stage of your own: one short file, and every verb knows it."""

import fedasym as fa
from fedasym.algorithms import Interpolate, Keep, ServerStage, setting


class Prox(ServerStage):
    """Clients solve their own problems, held near the shared model by `penalty`."""

    penalty: float = setting(
        0.1, above=0, meaning="pull towards the shared model", grid=[0.01, 0.1, 1]
    )

    def weight(self, x):
        """b(x): limits, exact fits and simulations follow from this line."""
        return 1 / (x + self.penalty)

    def step(self, w, start, gradient, rate):
        """One local step: training, tuning and Flower follow from this one."""
        return w - rate * (gradient(w) + self.penalty * (w - start))


proximal = fa.Algorithm(
    "proximal", Prox(), Keep(), reference="Li et al. 2020", words="FedAvg, clients held near"
)
tuned = fa.Algorithm("proximal_tuned", Prox(), Interpolate(), words="FedProx, then fine-tuning")
