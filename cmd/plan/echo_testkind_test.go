//go:build testkind

package main

import (
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// A kind of plan that was added by new files and one line per table has flags,
// validation, solve, refusal, check, explain and diff.
func TestEcho(t *testing.T) { testscript.Run(t, scripts("testdata/testkind")) }
