#!/bin/sh
# Installs the packages of a private Slurm cluster where they are missing (Debian, Ubuntu; root).
# No service of theirs is started: the cluster starts its own daemons.
set -eu

missing=
for program in munged slurmctld slurmd sbatch slurmdbd slurmrestd mariadbd mariadb-install-db; do
    command -v "$program" >/dev/null || missing="$missing $program"
done
[ -n "$missing" ] || exit 0
echo "installing Slurm and MariaDB, for:$missing"
command -v apt-get >/dev/null || { echo "there is no apt-get here: install them by hand" >&2; exit 1; }

policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    trap 'rm -f "$policy"' EXIT
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod 755 "$policy"
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -q
apt-get install -q -y --no-install-recommends \
    slurmctld slurmd slurm-client munge slurmdbd slurmrestd slurm-wlm-jwt-plugin mariadb-server
