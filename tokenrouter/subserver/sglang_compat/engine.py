"""SGLang behind the `Engine` seam: visits in, tokens and signals out.

Called by the loop only. It owns a stock SGLang scheduler whose queues stay empty and uses
its worker, and its pools through `pools.py`; `loading.py` builds it, `batch.py` turns work
into batches. Every call is deterministic, so that the ranks of a tensor-parallel member,
given the same calls, hold the same pools.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import torch
from sglang.srt.managers.schedule_batch import ModelWorkerBatch
from sglang.srt.managers.scheduler import Scheduler
from sglang.srt.sampling.sampling_batch_info import SamplingBatchInfo

from tokenrouter.errors import ConfigError, RankError, RequestError
from tokenrouter.ipc.operations import Action
from tokenrouter.schedulers.signals import Checks, Declared, DeferralProbability, OfLogits, Signal
from tokenrouter.subserver.engine import Meanwhile, StepBatch, Visit, Work, nothing, to_check
from tokenrouter.subserver.sglang_compat import controls
from tokenrouter.subserver.sglang_compat import signals as signal_values
from tokenrouter.subserver.sglang_compat.batch import build_batch
from tokenrouter.subserver.sglang_compat.checks import Drafts, places_to_check
from tokenrouter.subserver.sglang_compat.digest import BatchDigest
from tokenrouter.subserver.sglang_compat.drawing import Drawing
from tokenrouter.subserver.sglang_compat.grammar_compiler import GrammarCompiler
from tokenrouter.subserver.sglang_compat.logprobs import Report
from tokenrouter.subserver.sglang_compat.networks import Networks
from tokenrouter.subserver.sglang_compat.output_head import (
    has_output_head,
    logits_of,
    without_head,
)
from tokenrouter.subserver.sglang_compat.pools import Pools
from tokenrouter.subserver.sglang_compat.rules import adjust
from tokenrouter.subserver.sglang_compat.sampling import GREEDY, row_sampling
from tokenrouter.subserver.sglang_compat.unsound import failures, found, repair
from tokenrouter.subserver.sglang_compat.vocabulary import (
    TokenizerVocabulary,
    eos_ids,
    fingerprint,
    think_end_ids,
)


class SGLangEngine:
    """One model's engine; see `tokenrouter.subserver.engine.Engine`.

    ``context_length`` bounds a request (prompt and output), ``vocab_size`` is how
    many ids are tokens, ``eos_ids`` are the tokens at which SGLang ends a request, and
    ``tokenizer_fingerprint`` is equal for equal vocabularies.

    Args:
        grammars: whether it serves any.
        signals: those that it may be asked for, besides signals of logits.

    Raises:
        ConfigError: a network of ``signals`` is not there or not for this model, or they have
            the model check drafts, which it cannot.
    """

    def __init__(
        self, scheduler: Scheduler, grammars: bool = True, signals: Collection[Declared] = ()
    ) -> None:
        self.scheduler = scheduler
        self._worker = scheduler.tp_worker
        if any(isinstance(each, Checks) for each in signals) and not has_output_head(self._model):
            raise ConfigError(f"algorithm: {without_head(self._model)}")
        self._pools = Pools(scheduler)
        self.pool_tokens = self._pools.size
        self.max_visits: int = self._pools.rows.size
        self.context_length: int = scheduler.model_config.context_len
        self._networks = Networks(scheduler, signals)
        self.vocab_size = self._pools.vocabulary = self._networks.vocabulary
        self.eos_ids = eos_ids(scheduler.model_config, scheduler.tokenizer)
        end = self.vocab_size if self._networks.defers else math.inf
        self.tokenizer_fingerprint = fingerprint(scheduler.tokenizer, end)
        self.vocabulary = TokenizerVocabulary(scheduler.tokenizer)
        self._grammars = grammars
        self._compiler: GrammarCompiler | None = None
        self._think_end: tuple[int, ...] = ()
        self._digest = BatchDigest()
        # A CPU has computed everything by the time a call returns.
        self._synchronous = self._pools.rows.device == "cpu"

    @property
    def _model(self) -> torch.nn.Module:
        model: torch.nn.Module = self._worker.model_runner.model
        return model

    def limit_vocabulary(self, size: int) -> None:
        """Never sample, nor let signals see, token ids from ``size`` on.

        For members whose logits are padded beyond the smallest vocabulary of a deployment.
        """
        self._pools.vocabulary = min(size, self.vocab_size)

    def use_reasoning_parser(self, name: str | None) -> None:
        """Grammars bind what follows the reasoning that SGLang's parser ``name`` tells."""
        self._think_end = think_end_ids(self.scheduler.tokenizer, name)

    def free_tokens(self) -> int:
        """KV tokens unused, or cached and held by no visit."""
        return self._pools.free()

    def prepare(self, visit: Visit, wake: Callable[[], None]) -> bool:
        """Whether the grammar of the visit is compiled; asks for it at the first call.

        Raises:
            RequestError: it is no grammar, or this member has no use for any; or its algorithm
                asks for a network that is not loaded, or for checks that the model cannot do.
        """
        self._networks.check(visit.signals)
        if visit.check is not None and not has_output_head(self._model):
            raise RequestError(f"algorithm: {without_head(self._model)}", "algorithm")
        if visit.sampling.grammar is None:
            return True
        if visit.grammar is None:
            visit.grammar = self._grammar_compiler(visit.sampling.grammar.kind).request(visit, wake)
        if not visit.grammar.done():
            return False
        visit.grammar.result()
        return True

    def abandon(self, visit: Visit) -> None:
        """Compile the visit's grammar no further, unless another waits for it."""
        if visit.grammar is not None and self._compiler is not None:
            self._compiler.abandon(visit)

    def _grammar_compiler(self, kind: str) -> GrammarCompiler:
        if not self._grammars:
            raise RequestError(f"{kind}: grammars are off here: grammar_backend is none", kind)
        if self._compiler is None:
            tokenizer, think_end = self.scheduler.tokenizer, self._think_end
            self._compiler = GrammarCompiler(tokenizer, self._pools.vocabulary, think_end)
        return self._compiler

    @torch.no_grad()
    def admit(self, visit: Visit) -> bool:
        """Give the visit a row and the cached prefix of its tokens, short of the last one."""
        return self._pools.admit(visit)

    @torch.no_grad()
    def should_wait(self, visit: Visit, others: Sequence[Visit]) -> bool:
        """Whether a prompt of ``others`` will soon be in the cache that ``visit`` shares."""
        return self._pools.should_wait(visit, others)

    @torch.no_grad()
    def share(self, visit: Visit, length: int) -> None:
        """Let visits admitted from now on find the KV of the first ``length`` tokens."""
        self._pools.share(visit, length)

    @torch.no_grad()
    def step(
        self, work: Sequence[Work], signals: Sequence[Signal], meanwhile: Meanwhile = nothing
    ) -> StepBatch:
        """One forward pass over ``work``, then signals from its raw logits, then sampling.

        Raises:
            TokenRouterError: the pool has no room (nothing has changed), or the work feeds
                tokens that are not there.
        """
        places = places_to_check(work)
        drawing = Drawing(work, places, signals)
        sampling = row_sampling(drawing.by_sampler, self.vocab_size, self._pools.rows.device)
        checked = to_check(work) if places else ()
        asked = self._networks.asked(work, signals)
        batch, output = self._forward(work, sampling.info, meanwhile, checked, bool(asked))
        raw = output.next_token_logits
        vocabulary = self._pools.vocabulary
        ours = raw[:, :vocabulary] if raw.shape[1] > vocabulary else raw
        output.next_token_logits = logits = ours.contiguous()
        # All before sampling, which overwrites the logits.
        of_rows = logits[: len(work)] if places else logits
        blocks = self._blocks(raw, of_rows, signals)
        features = self._networks.features(asked, work, output.hidden_states, of_rows)
        drafts = Drafts(places, logits)
        drawing.see(logits)
        failed = adjust(logits, drawing.asking)
        # Where all tokens drawn are likeliest ones, it costs less to look at those alone.
        likeliest = sampling.info.is_all_greedy and not drawing.elsewhere
        unsound = None if likeliest else repair(logits, self._synchronous)
        drawing.draw(logits)
        report = Report(logits, drawing.asking)
        tokens = self._sample(output, batch, sampling.greedy)
        drawing.put(tokens)
        if unsound is None:
            unsound = found(logits, tokens, self._synchronous)
        if not self._synchronous:
            meanwhile()
        drawn = tokens[: len(work)] if places else tokens
        for each in features:
            blocks[each.signal] = self._networks.column(each, drawn)
        ids, values = signal_values.fetch(drawn, tuple(blocks), tuple(blocks.values()))
        logprobs = report.of(tokens)
        checks = drafts.checks(work, tokens, report, logprobs, drawing.judging)
        values = {**values, **drawing.proposals(len(work))}
        return StepBatch(
            ids, values, logprobs, {**failed, **failures(work, places, unsound)}, checks
        )

    @torch.no_grad()
    def replay(self, work: Sequence[Work], checked: Sequence[int] = ()) -> None:
        """The forward pass of `step` alone: rank 0 of a tensor-parallel member samples for all.

        ``checked``: what `to_check` says there.

        Raises:
            TokenRouterError: as `step`.
            RankError: a collective failed, as when another rank is gone.
        """
        draws = (GREEDY,) * len(work)
        sampling = row_sampling(draws, self.vocab_size, self._pools.rows.device)
        self._forward(work, sampling.info, checked=checked)

    def digest(self) -> int:
        """A checksum of all batches, equal on the ranks of a member; 0 where there is one."""
        return self._digest.value()

    def _blocks(
        self, raw: torch.Tensor, logits: torch.Tensor, signals: Sequence[Signal]
    ) -> dict[Signal, torch.Tensor]:
        """The signals that come from logits ``[rows, vocabulary]``; the ``raw`` ones have all rows
        and columns of the model's.
        """
        if not signals:
            return {}
        of_logits = [each for each in signals if isinstance(each, OfLogits)]
        blocks: dict[Signal, torch.Tensor] = dict(
            zip(of_logits, signal_values.columns(logits, of_logits), strict=True)
        )
        for each in signals:
            if isinstance(each, DeferralProbability):
                blocks[each] = raw[: len(logits), self.vocab_size :].float().sigmoid()
        return blocks

    def _forward(
        self,
        work: Sequence[Work],
        sampling: SamplingBatchInfo,
        meanwhile: Meanwhile = nothing,
        checked: Sequence[int] = (),
        hidden: bool = False,
    ) -> tuple[ModelWorkerBatch, Any]:
        """The batch that feeds ``work``, and SGLang's output, which holds the raw logits.

        Those after each row, and then those after the tokens ``checked``, see `to_check`.
        ``hidden``: and the hidden states of all tokens, or of each row's last one.
        """
        slots = self._pools.allocate(sum(n for _, n in work))
        batch = build_batch(work, slots, self._pools.rows, sampling, bool(checked), hidden)
        if self._worker.tp_size > 1:
            self._digest.add(batch)
        if self._synchronous:
            meanwhile()
        try:
            output, _, _ = self._worker.forward_batch_generation(batch, skip_sample=True)
            if checked:
                more = self._logits_after(checked, batch, output)
                output.next_token_logits = torch.cat([output.next_token_logits, more])
        except RuntimeError as error:
            if self._worker.tp_size == 1:
                raise
            reason = str(error).partition(" This is typically")[0]
            raise RankError(
                f"the forward pass failed, as it does when another rank is gone: {reason}"
            ) from error
        return batch, output

    def _logits_after(
        self, checked: Sequence[int], batch: ModelWorkerBatch, output: Any
    ) -> torch.Tensor:
        """Raw logits after the tokens ``checked`` of those that the batch feeds."""
        index = torch.tensor(checked, device=output.next_token_logits.device)
        if batch.forward_mode.is_decode():  # which feeds one token a row
            return output.next_token_logits[index]
        return logits_of(self._model, output.hidden_states[index], batch.forward_mode)

    def _sample(
        self, output: Any, batch: ModelWorkerBatch, greedy: torch.Tensor | None
    ) -> torch.Tensor:
        """Token ids (int64) of the rows; overwrites the logits unless all rows are greedy."""
        sample = self._worker.model_runner.sample
        if greedy is None:
            drawn: torch.Tensor = sample(output, batch)
            return drawn.long()
        best = output.next_token_logits.argmax(dim=-1)
        return torch.where(greedy, best, sample(output, batch).long())

    @torch.no_grad()
    def truncate(self, visit: Visit, length: int) -> None:
        """Free the KV from ``length`` on; it may cut into a cached prefix."""
        self._pools.truncate(visit, length)

    @torch.no_grad()
    def release(self, visit: Visit) -> None:
        """Leave the visit's KV to the cache and free the rest."""
        self._pools.release(visit)

    def control(self, action: Action, arguments: Mapping[str, Any]) -> str:
        """Flush the prefix cache, profile, or exchange the weights.

        Raises:
            TokenRouterError: it cannot be done, and why.
        """
        return controls.control(self.scheduler, action, arguments)

    def check_pools(self) -> None:
        """Verify, while no visit is resident, that every row and KV slot is accounted for once.

        Raises:
            TokenRouterError: something leaked or was freed twice.
        """
        self._pools.check()
