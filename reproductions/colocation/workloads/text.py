"""Text: LSTM language model, Transformer translation, BERT-like encoder with a span head, and a
GPT-like decoder (Vaswani et al. 2017, arXiv:1706.03762; Devlin et al. 2019, 1810.04805; Radford
et al. 2019)."""

# mypy: allow-subclassing-any
# (torch is not followed by the type checker: its modules are Any)

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from reproductions.colocation.workloads.task import Batch, Setup, Supervised, Task, adam, sgd


class LanguageLstm(nn.Module):
    """Maps tokens (batch, time) to scores of the next token."""

    def __init__(self, vocabulary: int, width: int, layers: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.lstm = nn.LSTM(width, width, layers, batch_first=True, dropout=0.2)
        self.score = nn.Linear(width, vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:
        scores: Tensor = self.score(self.lstm(self.embed(tokens))[0])
        return scores


class Positioned(nn.Module):
    """Maps tokens to their embeddings, each with a learned vector of its position added."""

    def __init__(self, vocabulary: int, width: int, length: int) -> None:
        super().__init__()
        self.token, self.place = nn.Embedding(vocabulary, width), nn.Embedding(length, width)

    def forward(self, tokens: Tensor) -> Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        found: Tensor = self.token(tokens) + self.place(places)
        return found


class Encoder(nn.Module):
    """A stack of pre-norm self-attention layers: causal for GPT, not for BERT."""

    def __init__(
        self, vocabulary: int, width: int, layers: int, length: int, outputs: int, causal: bool
    ) -> None:
        super().__init__()
        self.embed = Positioned(vocabulary, width, length)
        layer = nn.TransformerEncoderLayer(
            width, max(1, width // 64), 4 * width, 0.1, "gelu", batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, outputs)
        self.causal = causal
        mask = nn.Transformer.generate_square_subsequent_mask(length)
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        mask = self.mask if self.causal else None
        hidden = self.layers(self.embed(tokens), mask=mask, is_causal=self.causal)
        scores: Tensor = self.head(self.norm(hidden))
        return scores


class Translator(nn.Module):
    """An encoder and decoder: maps source and target tokens to scores of the next target
    token."""

    def __init__(self, vocabulary: int, width: int, layers: int, length: int) -> None:
        super().__init__()
        self.source = Positioned(vocabulary, width, length)
        self.target = Positioned(vocabulary, width, length)
        self.body = nn.Transformer(
            width, max(1, width // 64), layers, layers, 4 * width, 0.1, batch_first=True
        )
        self.head = nn.Linear(width, vocabulary)
        mask = nn.Transformer.generate_square_subsequent_mask(length)
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        hidden = self.body(
            self.source(source), self.target(target), tgt_mask=self.mask, tgt_is_causal=True
        )
        scores: Tensor = self.head(hidden)
        return scores


def next_token(model: nn.Module, batch: Batch) -> Tensor:
    tokens, following = batch
    return F.cross_entropy(model(tokens).flatten(0, 1), following.flatten())


def translation(model: nn.Module, batch: Batch) -> Tensor:
    source, target, following = batch
    return F.cross_entropy(model(source, target).flatten(0, 1), following.flatten())


def span(model: nn.Module, batch: Batch) -> Tensor:
    tokens, bounds = batch
    begin, end = model(tokens).unbind(2)
    return F.cross_entropy(begin, bounds[:, 0]) + F.cross_entropy(end, bounds[:, 1])


def build(name: str, batch: int, setup: Setup) -> Task:
    tiny = setup.tiny
    if name == "LSTM":
        words, length = (2000, 20) if tiny else (33278, 35)
        model: nn.Module = LanguageLstm(words, 128 if tiny else 650, 2)
        return Supervised(
            setup=setup,
            model=model,
            batch=lambda: (
                setup.integers(words, batch, length),
                setup.integers(words, batch, length),
            ),
            loss=next_token,
            optimizer=sgd(0.1),
        )
    if name == "Transformer":
        words, length = (2000, 16) if tiny else (10000, 32)
        model = Translator(words, 128, 2, length) if tiny else Translator(words, 512, 6, length)
        return Supervised(
            setup=setup,
            model=model,
            batch=lambda: tuple(setup.integers(words, batch, length) for _ in range(3)),
            loss=translation,
            optimizer=adam(1e-4),
        )
    if name == "BERT":
        words, length = (2000, 64) if tiny else (30522, 384)
        width, layers = (128, 2) if tiny else (768, 12)
        return Supervised(
            setup=setup,
            model=Encoder(
                vocabulary=words, width=width, layers=layers, length=length, outputs=2, causal=False
            ),
            batch=lambda: (setup.integers(words, batch, length), setup.integers(length, batch, 2)),
            loss=span,
            optimizer=adam(3e-5),
        )
    words, length = (2000, 64) if tiny else (50257, 512)
    width, layers = (128, 2) if tiny else (768, 12)
    return Supervised(
        setup=setup,
        model=Encoder(
            vocabulary=words, width=width, layers=layers, length=length, outputs=words, causal=True
        ),
        batch=lambda: (setup.integers(words, batch, length), setup.integers(words, batch, length)),
        loss=next_token,
        optimizer=adam(1e-4),
    )
