//go:build tools

// Package pebble names the program that scripts/pebble.sh builds, so that go.sum has the sums of its modules.
package pebble

import _ "github.com/letsencrypt/pebble/v2/cmd/pebble"
