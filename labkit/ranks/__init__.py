"""One function on N processes: results and metrics back, failures explained. torch.distributed does the rest."""
