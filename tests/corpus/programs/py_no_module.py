import os

import apex.normalization
