"""Image classifiers: ResNet, MobileNetV2 and V3, EfficientNet-B0, VGG-16.

Written from the papers' tables, compactly: He et al. 2016 (arXiv:1512.03385), Sandler et al. 2018
(1801.04381), Howard et al. 2019 (1905.02244, "small"), Tan & Le 2019 (1905.11946), Simonyan &
Zisserman 2015 (1409.1556). On 32 x 32 images the first stride-2 layers are taken with stride 1.
"""

# mypy: allow-subclassing-any
# (torch is not followed by the type checker: its modules are Any)

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from reproductions.colocation.workloads.task import Batch, Setup, Supervised, Task, sgd


def conv(
    inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1, act: str = "relu"
) -> nn.Sequential:
    """Return a convolution with batch norm and activation."""
    acts: dict[str, nn.Module] = {
        "relu": nn.ReLU(True),
        "relu6": nn.ReLU6(True),
        "swish": nn.SiLU(True),
        "hswish": nn.Hardswish(True),
        "none": nn.Identity(),
    }
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs),
        acts[act],
    )


class Residual(nn.Module):
    """A block of a ResNet, ReLU(body(x) + shortcut(x)): the basic block if `expand` is 1, otherwise
    the bottleneck."""

    def __init__(self, inputs: int, width: int, stride: int, expand: int) -> None:
        super().__init__()
        outputs = width * expand
        if expand == 1:
            self.body = nn.Sequential(
                conv(inputs, width, 3, stride), conv(width, width, 3, act="none")
            )
        else:
            self.body = nn.Sequential(
                conv(inputs, width, 1),
                conv(width, width, 3, stride),
                conv(width, outputs, 1, act="none"),
            )
        same = stride == 1 and inputs == outputs
        self.shortcut = nn.Identity() if same else conv(inputs, outputs, 1, stride, act="none")

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.body(x) + self.shortcut(x), inplace=True)


class SqueezeExcite(nn.Module):
    """Channel attention (Hu et al. 2018, arXiv:1709.01507)."""

    def __init__(self, channels: int, squeezed: int) -> None:
        super().__init__()
        self.down, self.up = nn.Conv2d(channels, squeezed, 1), nn.Conv2d(squeezed, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        scale: Tensor = self.up(F.relu(self.down(x.mean((2, 3), keepdim=True))))
        return x * scale.sigmoid()


class InvertedResidual(nn.Module):
    """A block of MobileNets and EfficientNet: it expands the channels, convolves each by itself
    and projects them. With `squeezed`, channel attention comes before the projection."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        hidden: int,
        kernel: int,
        stride: int,
        act: str,
        squeezed: int = 0,
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = [conv(inputs, hidden, 1, act=act)] if hidden != inputs else []
        layers.append(conv(hidden, hidden, kernel, stride, groups=hidden, act=act))
        if squeezed:
            layers.append(SqueezeExcite(hidden, squeezed))
        layers.append(conv(hidden, outputs, 1, act="none"))
        self.body = nn.Sequential(*layers)
        self.add = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.body(x)
        return x + y if self.add else y


def head(channels: int, classes: int) -> list[nn.Module]:
    return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes)]


def resnet(
    depths: tuple[int, ...], expand: int, classes: int, small: bool, width: int
) -> nn.Module:
    stem: list[nn.Module] = (
        [conv(3, width, 3)] if small else [conv(3, width, 7, 2), nn.MaxPool2d(3, 2, 1)]
    )
    layers, inputs = stem, width
    for stage, depth in enumerate(depths):
        for block in range(depth):
            stride = 2 if stage > 0 and block == 0 else 1
            layers.append(Residual(inputs, width << stage, stride, expand))
            inputs = (width << stage) * expand
    return nn.Sequential(*layers, *head(inputs, classes))


# expansion, channels, repeats, stride (table 2 of the paper)
_V2 = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2),
       (6, 320, 1, 1))  # fmt: skip
# kernel, hidden, channels, squeeze-excite, activation, stride (table 2, "small")
_V3 = ((3, 16, 16, 1, "relu", 2), (3, 72, 24, 0, "relu", 2), (3, 88, 24, 0, "relu", 1),
       (5, 96, 40, 1, "hswish", 2), (5, 240, 40, 1, "hswish", 1), (5, 240, 40, 1, "hswish", 1),
       (5, 120, 48, 1, "hswish", 1), (5, 144, 48, 1, "hswish", 1), (5, 288, 96, 1, "hswish", 2),
       (5, 576, 96, 1, "hswish", 1), (5, 576, 96, 1, "hswish", 1))  # fmt: skip
# expansion, channels, repeats, stride, kernel (table 1, B0)
_B0 = ((1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 40, 2, 2, 5), (6, 80, 3, 2, 3), (6, 112, 3, 1, 5),
       (6, 192, 4, 2, 5), (6, 320, 1, 1, 3))  # fmt: skip


def mobilenet_v2(classes: int, depth: int) -> nn.Module:
    layers: list[nn.Module] = [conv(3, 32, 3, act="relu6")]
    inputs = 32
    for expand, outputs, repeats, stride in _V2[:depth]:
        for block in range(repeats):
            step = stride if block == 0 and outputs != 24 else 1  # 32 x 32: one stride fewer
            hidden = inputs * expand
            layers.append(
                InvertedResidual(
                    inputs=inputs,
                    outputs=outputs,
                    hidden=hidden,
                    kernel=3,
                    stride=step,
                    act="relu6",
                )
            )
            inputs = outputs
    return nn.Sequential(*layers, conv(inputs, 1280, 1, act="relu6"), *head(1280, classes))


def mobilenet_v3(classes: int, depth: int) -> nn.Module:
    layers: list[nn.Module] = [conv(3, 16, 3, 2, act="hswish")]
    inputs = 16
    for kernel, hidden, outputs, squeeze, act, stride in _V3[:depth]:
        squeezed = max(8, hidden // 4) if squeeze else 0
        layers.append(
            InvertedResidual(
                inputs=inputs,
                outputs=outputs,
                hidden=hidden,
                kernel=kernel,
                stride=stride,
                act=act,
                squeezed=squeezed,
            )
        )
        inputs = outputs
    layers += [conv(inputs, 576, 1, act="hswish"), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(
        *layers, nn.Linear(576, 1024), nn.Hardswish(), nn.Dropout(0.2), nn.Linear(1024, classes)
    )


def efficientnet_b0(classes: int, depth: int) -> nn.Module:
    layers: list[nn.Module] = [conv(3, 32, 3, act="swish")]
    inputs = 32
    for expand, outputs, repeats, stride, kernel in _B0[:depth]:
        for block in range(repeats):
            layers.append(
                InvertedResidual(
                    inputs=inputs,
                    outputs=outputs,
                    hidden=inputs * expand,
                    kernel=kernel,
                    stride=stride if block == 0 else 1,
                    act="swish",
                    squeezed=max(1, inputs // 4),
                )
            )
            inputs = outputs
    return nn.Sequential(
        *layers,
        conv(inputs, 1280, 1, act="swish"),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Dropout(0.2),
        nn.Linear(1280, classes),
    )


def vgg16(classes: int, width: int) -> nn.Module:
    layers: list[nn.Module] = []
    inputs = 3
    for multiple, repeats in ((1, 2), (2, 2), (4, 3), (8, 3), (8, 3)):
        for _ in range(repeats):
            layers.append(conv(inputs, width * multiple, 3))
            inputs = width * multiple
        layers.append(nn.MaxPool2d(2))
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(inputs, classes))


def cross_entropy(model: nn.Module, batch: Batch) -> Tensor:
    images, labels = batch
    return F.cross_entropy(model(images), labels)


def build(name: str, batch: int, setup: Setup) -> Task:
    """Return the task called `name`. Tiny ones keep the architecture and lose depth, width or
    pixels.
    """
    tiny = setup.tiny
    imagenet = name in ("ResNet50", "MobileNetV3")
    classes = 1000 if imagenet else 10
    pixels = (96 if tiny else 224) if imagenet else 32
    if name == "ResNet50":
        model = resnet(
            depths=(1, 1, 1, 1) if tiny else (3, 4, 6, 3),
            expand=4,
            classes=classes,
            small=False,
            width=64,
        )
    elif name == "ResNet18":
        model = resnet(
            depths=(1, 1, 1, 1) if tiny else (2, 2, 2, 2),
            expand=1,
            classes=classes,
            small=True,
            width=16 if tiny else 64,
        )
    elif name == "MobileNetV2":
        model = mobilenet_v2(classes, 3 if tiny else len(_V2))
    elif name == "MobileNetV3":
        model = mobilenet_v3(classes, 6 if tiny else len(_V3))
    elif name == "EfficientNet":
        model = efficientnet_b0(classes, 3 if tiny else len(_B0))
    else:
        model = vgg16(classes, 16 if tiny else 64)
    return Supervised(
        setup=setup,
        model=model,
        batch=lambda: (setup.normal(batch, 3, pixels, pixels), setup.integers(classes, batch)),
        loss=cross_entropy,
        optimizer=sgd(0.01),
    )
