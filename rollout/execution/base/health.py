from collections.abc import Callable, Sequence

from msgspec import Struct

from rollout.errors import ApiError, GateError
from rollout.execution.base.deadline import PatientApi
from rollout.gather.cluster.objects import read_object
from rollout.model.finding import ObjectHealthUnknown, ObjectUnhealthy
from rollout.model.gates import HealthRule
from rollout.model.object_reference import ObjectReference

_SECONDS = 10.0

HealthEvaluation = Callable[[str, bytes], bool]
"""Return the value of an expression for an object in JSON; `GateError` if it has none."""


class ObjectHealth(Struct, frozen=True):
    """Each rule of gates.healthy has an object, and an expression that must be true."""

    cluster: PatientApi
    rules: Sequence[HealthRule]
    evaluate: HealthEvaluation | None

    def find_problem(self) -> ObjectUnhealthy | ObjectHealthUnknown | None:
        for rule in self.rules:
            problem = self._find_violation(rule)
            if problem is not None:
                return problem
        return None

    def _find_violation(self, rule: HealthRule) -> ObjectUnhealthy | ObjectHealthUnknown | None:
        reference = ObjectReference.parse(rule.resource)
        # Perhaps only this object cannot be read, because its conversion webhook is down.
        deadline = self.cluster.deadline_within(_SECONDS)
        try:
            body = self.cluster.ask(lambda api: read_object(api, reference), deadline)
            is_healthy = self._evaluate(rule.expression, body)
        except (GateError, ApiError) as error:
            return ObjectHealthUnknown(rule.resource, error.message)
        return None if is_healthy else ObjectUnhealthy(rule.resource, rule.expression)

    def _evaluate(self, expression: str, body: bytes) -> bool:
        if self.evaluate is None:
            raise GateError("this process evaluates no expressions")
        return self.evaluate(expression, body)
