"""Model weights: where they are, whether they are whole, and how they get into memory.

A *shelf* is a folder that holds snapshots of weights by id: the store on disk, and the tmpfs mount that is served
from. A snapshot is published whole, by one rename, with a manifest that was written last.

digests    hashes of files, several in one pass
manifest   the record beside the files
contents   which files of a folder are the model, and whether they are whole
hub_cache  the Hugging Face cache, read without the hub
space      what fits: the filesystem, the host's memory, the control group
transfer   bytes from a source to a shelf, in parallel, hashed on the way
shelf      staging folder, publishing, inspecting, removing
staging    the order of sources and the state of a host: present, verified, absent
"""
