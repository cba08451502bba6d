#!/usr/bin/env bash
# rust-src.sh DIR: puts the sources of the standard library of the rustc in use into DIR, from the Debian mirror of this
# machine, and prints where they lie. Nothing is installed. They let cargo check code for a system whose standard
# library this machine does not have.
set -euo pipefail

version=$(rustc --version | cut -d' ' -f2)
mkdir -p "$1"
cd "$1"
library=$PWD/usr/src/rustc-$version/library
if [ ! -d "$library" ]; then
  # A package index of our own beside the system's, with the release that has this version.
  index=$PWD/index
  mkdir -p "$index"/{etc/apt.conf.d,etc/preferences.d,lists/partial,archives/partial}
  mirror=$(apt-get indextargets --format '$(SITE) $(RELEASE)' | awk '$2 !~ /security/ { print $1; exit }')
  keyring=/usr/share/keyrings/debian-archive-keyring.gpg
  echo "deb [signed-by=$keyring] $mirror trixie-backports main" > "$index/etc/sources.list"
  printf 'Dir::Etc "%s/etc";\nDir::State::lists "%s/lists";\nDir::Cache "%s";\nAPT::Sandbox::User "root";\n' \
    "$index" "$index" "$index" > "$index/apt.conf"
  export APT_CONFIG=$index/apt.conf
  apt-get -qq update >&2
  package=$(apt-cache madison rust-src | awk -v v="$version" 'index($3, v "+") == 1 || index($3, v "-") == 1 { print $3; exit }')
  if [ -z "$package" ]; then
    echo "the mirror has no rust-src $version" >&2
    exit 1
  fi
  apt-get -qq download "rust-src=$package" >&2
  dpkg-deb --fsys-tarfile rust-src_*.deb | tar x "./usr/src/rustc-$version/library"
  rm -r rust-src_*.deb "$index"
fi
echo "$library"
