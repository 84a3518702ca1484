"""The network that a model stands on: the pretrained one, or one that was fine-tuned."""

from dataclasses import dataclass

from anneal.campaign.campaign import Campaign
from anneal.campaign.intact import NETWORKS, network_file
from anneal.campaign.rounds import FROZEN
from anneal.errors import CampaignError
from anneal.network import backbones, model, tune
from anneal.network.backbones import Backbone
from anneal.network.model import Encoder


@dataclass(frozen=True)
class Origin:
    """What a round builds on."""

    network: Backbone  # gives the features
    start: Encoder | None  # training starts from it
    name: str = ""  # of the network, if it is a fine-tuned one


def network_of(campaign: Campaign, backbone: Backbone | None = None, number: int = FROZEN) -> Backbone:
    """The network that a round's model stands on, for the bands of the archive: the campaign's pretrained
    one, which may be there already, or a fine-tuned one."""
    loaded = backbone or backbones.load(campaign.settings.backbone)
    pretrained = backbones.for_bands(loaded, campaign.reading.kernels)
    file = network_file(campaign.rounds.files(number).folder)
    return pretrained if file is None else tune.load(file, pretrained)


def origin_of(campaign: Campaign, backbone: Backbone | None = None) -> Origin:
    """What the next round builds on: the network of the serving model and, with warm restart, its encoder. If
    these are damaged or missing, training starts anew on the pretrained network."""
    number = campaign.rounds.serving
    files = campaign.rounds.files(number)
    if not files.has_model:
        return Origin(network_of(campaign, backbone), None)
    try:
        network = network_of(campaign, backbone, number)
        start = None if campaign.settings.restart == "cold" else model.load(files.folder, network)
    except CampaignError:
        return Origin(network_of(campaign, backbone), None)
    file = network_file(files.folder)
    return Origin(network, start, "" if file is None else file.stem)


def remove_unused(campaign: Campaign) -> None:
    """Remove the fine-tuned networks that no model stands on, and what was made with them: a process that was
    killed may have left one, and the rounds of another may be gone."""
    rounds = campaign.rounds
    used = {network_file(rounds.files(number).folder) for number in range(rounds.current)}
    for file in (campaign.folder / "rounds" / NETWORKS).glob("*.safetensors"):
        if file not in used:
            for made in campaign.archive_folder.glob(f"*{file.stem}*"):
                made.unlink()
            file.unlink()
