#!/bin/sh
# Installs the packages of a private Slurm cluster where they are missing (Debian, Ubuntu; root).
# No service of theirs is started, or enabled: the cluster starts its own daemons.
#
#     install.sh           on this host, its own release
#     install.sh 24.11     Debian's 24.11 in a folder; of the host only debootstrap is needed
#
# A folder's commands are in its pellucid-bin, to be put first in PATH. Each runs in the folder with
# a mount table of its own, in which /tmp, /proc, /dev and who the users are is the host's: nothing
# stays mounted.
set -eu
export DEBIAN_FRONTEND=noninteractive
packages="slurmctld slurmd slurm-client munge slurmdbd mariadb-server"
programs="munged slurmctld slurmd sbatch slurmdbd mariadbd mariadb-install-db"

no_services() { # of a root folder, while packages are installed
    policy=$1/usr/sbin/policy-rc.d
    [ -e "$policy" ] && return
    trap 'rm -f "$policy"' EXIT
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod 755 "$policy"
}

enabled() { # units that start with the host
    find /etc/systemd/system -path '*.wants/*' -type l
}

if [ $# = 0 ]; then
    missing=
    for program in $programs; do
        command -v "$program" >/dev/null || missing="$missing $program"
    done
    [ -n "$missing" ] || exit 0
    echo "installing Slurm and MariaDB, for:$missing"
    command -v apt-get >/dev/null || { echo "there is no apt-get here: install them by hand" >&2; exit 1; }
    no_services ""
    apt-get update -q
    before=$(enabled)
    # shellcheck disable=SC2086
    apt-get install -q -y --no-install-recommends $packages
    enabled | while read -r unit; do
        case $before in *"$unit"*) ;; *) rm "$unit" ;; esac
    done
    exit 0
fi

case $1 in
    22.05) suite=bookworm ;;
    24.11) suite=trixie ;;
    26.05) suite=sid ;;
    *) echo "there is no release $1 in a folder; there are 22.05, 24.11 and 26.05" >&2; exit 2 ;;
esac
root=${XDG_CACHE_HOME:-/var/cache}/pellucid/slurm-$1
[ ! -e "$root/pellucid-bin/.done" ] || exit 0
[ "$(id -u)" = 0 ] || { echo "a folder of packages is made by root" >&2; exit 1; }
command -v debootstrap >/dev/null || { echo "debootstrap is missing: apt-get install debootstrap" >&2; exit 1; }
# from where this host has Debian's own packages
mirror=$(apt-get indextargets --format '$(REPO_URI) $(ORIGIN) $(LABEL)' 'Identifier: Packages' |
    awk '$2 == "Debian" && $3 == "Debian" {print $1; exit}')
[ -n "$mirror" ] || { echo "apt of this host knows no archive of Debian" >&2; exit 1; }
echo "Debian $suite with Slurm $1 into $root"
rm -rf --one-file-system "$root"
mkdir -p "$root"
unshare --mount --propagation private debootstrap --variant=minbase "$suite" "$root" "$mirror" >"$root.log" 2>&1 ||
    { tail -n 3 "$root.log" >&2; exit 1; }
cp /etc/resolv.conf "$root/etc/resolv.conf"
mkdir -p "$root/etc/apt/apt.conf.d"
apt-config dump | grep -i '^Acquire::.*Proxy' >"$root/etc/apt/apt.conf.d/90host" || :
printf 'Acquire::Check-Valid-Until "false";\nAcquire::Check-Date "false";\n' >>"$root/etc/apt/apt.conf.d/90host"
no_services "$root"

mkdir -p "$root/pellucid-bin"
touch "$root/etc/hosts"
unshare --mount --propagation private sh -c '
    for of in /proc /dev; do mount --rbind $of $1$of; done
    shift; exec chroot "$@"
' in "$root" "$root" sh -ec "
    apt-get update -q
    apt-get install -q -y --no-install-recommends $packages procps
    [ $suite != bookworm ] || exit 0
    # slurmdbd is refused every answer (error 5027) by the database's client of later suites
    echo deb $mirror bookworm main >/etc/apt/sources.list.d/client.list
    cd /opt
    apt-get update -q
    apt-get download -q libmariadb3/bookworm
    dpkg-deb -x libmariadb3_*.deb /opt/client
    ls -d /opt/client/usr/lib/*/ >/etc/ld.so.conf.d/00-client.conf
    ldconfig" >>"$root.log" 2>&1 ||
    { tail -n 3 "$root.log" >&2; exit 1; }

# What runs in the folder, with the host's processes, devices, temporary files and users, as whoever
# runs it. A command that `setpriv` begins as another user enters the folder first.
cat >"$root/pellucid-bin/.in" <<END
#!/bin/sh
[ "\$(id -u)" = 0 ] || own="--user --map-current-user --keep-caps"
exec unshare \$own --mount --propagation private sh -c '
    root=\$1; shift
    for of in /proc /sys /dev /tmp; do mount --rbind \$of \$root\$of || exit 1; done
    for of in passwd group hosts; do mount --bind /etc/\$of \$root/etc/\$of || exit 1; done
    exec chroot \$root /pellucid-bin/.there "\$PWD" "\$@"
' in "$root" "\$@"
END
cat >"$root/pellucid-bin/.there" <<'END'
#!/bin/sh
# where the folder is under /tmp, PATH would find these wrappers again
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
cd "$1" 2>/dev/null || cd /
shift
exec "$@"
END
cat >"$root/pellucid-bin/setpriv" <<'END'
#!/bin/sh
bin=$(dirname "$0") command=
for word; do
    [ "$command" != -- ] || { command=$word; break; }
    [ "$word" != -- ] || command=--
done
[ ! -x "$bin/$command" ] || exec "$bin/.in" setpriv "$@"
exec /usr/bin/setpriv "$@"
END
chroot "$root" dpkg -L $packages mariadb-server-core | sed -n 's#^\(/usr\)\?/s\?bin/##p' | sed 'p; s/-wlm$//' |
    sort -u | while read -r name; do
    printf '#!/bin/sh\nexec "%s/pellucid-bin/.in" %s "$@"\n' "$root" "$name" >"$root/pellucid-bin/$name"
done
chmod 755 "$root"/pellucid-bin/* "$root"/pellucid-bin/.in "$root"/pellucid-bin/.there
rm -f "$root.log"
touch "$root/pellucid-bin/.done"
