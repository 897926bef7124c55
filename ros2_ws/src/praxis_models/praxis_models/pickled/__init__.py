# SPDX-License-Identifier: Apache-2.0
"""Numbers out of pickles and files of ``torch.save``, read without running them."""
