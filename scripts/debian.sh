#!/bin/sh
# Installs missing Debian packages, as root or through sudo. Usage: scripts/debian.sh PACKAGE...
#
# Services in these packages are not started: a peer's server runs only while it is measured.
set -eu

missing=
for package; do
    dpkg-query -W -f '${db:Status-Status}\n' "$package" 2>/dev/null | grep -qx installed ||
        missing="$missing $package"
done
[ -n "$missing" ] || exit 0

if ! command -v apt-get >/dev/null; then
    echo "not a Debian system; missing, by their Debian names:$missing" >&2
    exit 1
fi
as_root=
if [ "$(id -u)" != 0 ]; then
    if ! command -v sudo >/dev/null; then
        echo "neither root nor sudo: ask an administrator to run  apt-get install$missing" >&2
        exit 1
    fi
    as_root=sudo
fi

# Packages ask this policy before they start a service (invoke-rc.d(8)); 101 means no. An existing
# policy stays.
# The words are package names: they split on purpose.
# shellcheck disable=SC2086
exec $as_root env DEBIAN_FRONTEND=noninteractive sh -eu -c '
    policy=/usr/sbin/policy-rc.d
    if [ ! -e "$policy" ]; then
        trap "rm -f $policy" EXIT
        trap "exit 1" HUP INT TERM
        printf "#!/bin/sh\nexit 101\n" >"$policy"
        chmod 755 "$policy"
    fi
    apt-get -qq -o DPkg::Lock::Timeout=300 update
    apt-get -qq -o DPkg::Lock::Timeout=300 install --yes --no-install-recommends "$@"
' debian.sh $missing </dev/null
