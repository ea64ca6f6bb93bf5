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
	for kind, want := range wireKinds {
		if want == nil {
			continue
		}
		if _, is := errors.AsType[*llm.Error](toWire(&llm.Error{Kind: want}).Err()); is != (kind >= llmKind) {
			t.Errorf("%v: comes as an error of a server: %v", want, is)
		}
		var w *wireError
		if err := json.Unmarshal(Encode(toWire(fmt.Errorf("more: %w", want))), &w); err != nil || !errors.Is(w.Err(), want) {
			t.Errorf("%v comes as %v, %v", want, w.Err(), err)
		}
	}
	if err := toWire(nil).Err(); err != nil {
		t.Errorf("nothing comes as %v", err)
	}
	got := toWire(&llm.Error{Kind: llm.ErrRefused, Status: 400, Text: "too long"}).Err()
	if said, ok := errors.AsType[*llm.Error](got); !ok || said.Status != 400 || said.Text != "too long" {
		t.Errorf("a refusal comes as %+v", got)
	}
	if got := toWire(fmt.Errorf("%w: %w", errUnseen, llm.ErrGone)).Err(); !errors.Is(got, errUnseen) || errors.Is(got, llm.ErrGone) {
		t.Errorf("a look that failed comes as %v", got)
	}
	for _, kind := range []int{-1, len(wireKinds), 1 << 30} {
		if err := (&wireError{Kind: kind, Text: "x"}).Err(); err == nil || err.Error() != "x" {
			t.Errorf("kind %d comes as %v", kind, err)
		}
	}
}
