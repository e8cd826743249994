#!/bin/bash
# After https://github.com/GenomicsAotearoa/metagenomics_summer_school/issues/81
# finding: odd-character 4
#SBATCH --nodes=2
#SBATCH --gres=gpu:1
srun hostname
