package calls

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"inferplan/formats/calls"
	"inferplan/policy"
)

func tables() *policy.Tables {
	return &policy.Tables{Models: []policy.Model{{Name: "chat"}}, Services: []policy.Service{{Name: "llm"}, {Name: "draw"}}}
}

func answer(c *calls.Call, _ *rand.Rand) []calls.Outputs {
	return []calls.Outputs{{"part": 1}, {"text": c.Model}}
}

// play begins a request and ends its tasks in order; it gives what was revealed at
// once, and whether the request ended.
func play(t *testing.T, c *Control, most int) (segments []string, over bool) {
	t.Helper()
	var out policy.Reveals
	c.Begin(0, 0, &out)
	for done, seen := 0, 0; ; {
		var words []string
		for ; seen < len(out.Tasks); seen++ {
			words = append(words, fmt.Sprintf("%d%v", out.Tasks[seen].Service, out.InputsOf(&out.Tasks[seen])))
		}
		if len(words) > 0 {
			segments = append(segments, strings.Join(words, " "))
		}
		if len(out.Over) > 0 {
			if n := len(out.Freed); n != len(out.Tasks) {
				t.Errorf("%d of %d slots are free", n, len(out.Tasks))
			}
			return segments, true
		}
		if done == most {
			c.Forget(0, &out)
			if n := len(out.Freed); n != len(out.Tasks) {
				t.Errorf("%d of %d slots are free after the request was dropped", n, len(out.Tasks))
			}
			return segments, false
		}
		c.Ended(out.Tasks[done].Task, policy.Outcome{}, &out)
		done++
	}
}

// What is enqueued without a wait is revealed together. A program goes on when all
// that it waits for has ended, and a request is over with its last task.
func TestSegments(t *testing.T) {
	program := func(s calls.Session) (calls.Outputs, error) {
		a, _ := s.Enqueue(calls.Call{Model: "llm"})
		b, _ := s.Enqueue(calls.Call{Model: "llm", Reads: []calls.Handle{a}})
		if err := s.Wait(a); err != nil {
			return nil, err
		}
		if _, err := s.Enqueue(calls.Call{Model: "nothing"}); err == nil {
			t.Error("a model that is not there is enqueued")
		}
		if _, err := s.Enqueue(calls.Call{Model: "llm", Reads: []calls.Handle{"t9"}}); !errors.Is(err, calls.ErrUnknown) {
			t.Errorf("a handle that is not there: %v", err)
		}
		d, _ := s.Enqueue(calls.Call{Model: "draw", Reads: []calls.Handle{a, b}})
		pieces := 0
		for _, err := range s.Stream(d) {
			if err != nil {
				return nil, err
			}
			pieces++
		}
		_, _ = s.Enqueue(calls.Call{Model: "draw"}) // nobody waits for it
		out, err := s.Result(d)
		return calls.Outputs{"pieces": pieces, "text": out["text"]}, err
	}
	c, err := NewControl(tables(), []Application{{Program: program}}, answer, 1)
	if err != nil {
		t.Fatal(err)
	}
	var got calls.Outputs
	c.Answered = func(_ int32, a calls.Outputs, err error) {
		if got = a; err != nil {
			t.Error(err)
		}
	}
	segments, over := play(t, c, 100)
	if text := strings.Join(segments, " | "); text != "0[-1] 0[0] | 1[0 1] | 1[-1]" || !over {
		t.Errorf("revealed %s, over: %v", text, over)
	}
	if got["pieces"] != 2 || got["text"] != "draw" {
		t.Errorf("answer %v", got)
	}
}

// A request that is dropped ends its program wherever it waits, also one that goes
// on regardless.
func TestDropped(t *testing.T) {
	ended := 0
	program := func(s calls.Session) (calls.Outputs, error) {
		defer func() { ended++ }()
		for range 5 {
			h, err := s.Enqueue(calls.Call{Model: "llm"})
			_, _ = s.Result(h)
			if err != nil && !errors.Is(err, calls.ErrEnded) {
				t.Error(err)
			}
		}
		return nil, nil
	}
	for most := range 6 {
		c, err := NewControl(tables(), []Application{{Program: program}}, answer, 1)
		if err != nil {
			t.Fatal(err)
		}
		if _, over := play(t, c, most); over != (most == 5) {
			t.Errorf("over after %d tasks: %v", most, over)
		}
		if ended != most+1 {
			t.Errorf("%d programs have ended of %d", ended, most+1)
		}
	}
}
