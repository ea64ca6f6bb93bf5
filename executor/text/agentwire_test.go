package text

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"inferplan/engine/llm"
)

// Errors mean the same in another process.
func TestErrorsBetweenProcesses(t *testing.T) {
	for kind, want := range wireErrors {
		if want == nil {
			continue
		}
		if _, is := errors.AsType[*llm.Error](toWireError(&llm.Error{Kind: want}).Err()); is != (kind >= firstLLMKind) {
			t.Errorf("%v: comes as an error of a server: %v", want, is)
		}
		var w *wireError
		if err := json.Unmarshal(Encode(toWireError(fmt.Errorf("more: %w", want))), &w); err != nil || !errors.Is(w.Err(), want) {
			t.Errorf("%v comes as %v, %v", want, w.Err(), err)
		}
	}
	if err := toWireError(nil).Err(); err != nil {
		t.Errorf("nothing comes as %v", err)
	}
	got := toWireError(&llm.Error{Kind: llm.ErrRefused, Status: 400, Text: "too long"}).Err()
	if serverErr, ok := errors.AsType[*llm.Error](got); !ok || serverErr.Status != 400 || serverErr.Text != "too long" {
		t.Errorf("a refusal comes as %+v", got)
	}
	if got := toWireError(fmt.Errorf("%w: %w", errStatusUnknown, llm.ErrGone)).Err(); !errors.Is(got, errStatusUnknown) || errors.Is(got, llm.ErrGone) {
		t.Errorf("a look that failed comes as %v", got)
	}
	for _, kind := range []int{-1, len(wireErrors), 1 << 30} {
		if err := (&wireError{Kind: kind, Text: "x"}).Err(); err == nil || err.Error() != "x" {
			t.Errorf("kind %d comes as %v", kind, err)
		}
	}
}
