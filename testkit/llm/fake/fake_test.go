package fake_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"inferplan/engine/llm"
	"inferplan/testkit/llm/fake"
)

func start(t *testing.T, opt fake.Options) (*fake.Server, *llm.Server) {
	t.Helper()
	s, err := fake.Start(opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	c, err := llm.Probe(context.Background(), s.URL())
	if err != nil {
		t.Fatal(err)
	}
	return s, c
}

// A text cut anywhere goes on the same from prompt and part.
func TestTextContinues(t *testing.T) {
	whole := fake.Text("m", "prompt", 60)
	for at := range 60 {
		if got := whole[:at] + fake.Text("m", "prompt"+whole[:at], 60-at); got != whole {
			t.Fatalf("cut after %d: %q, expected %q", at, got, whole)
		}
	}
	if whole == fake.Text("n", "prompt", 60) || strings.Count(whole, whole[:1]) > 30 {
		t.Errorf("%q: the same for another model, or hardly a text", whole)
	}
}

// The client's adapter of a router works with it: models come and go, a request for
// another one waits for the drain, metrics count.
func TestRouter(t *testing.T) {
	ctx := context.Background()
	s, c := start(t, fake.Options{Models: []string{"a", "b"}, Load: 10 * time.Millisecond})
	if c.Abilities.Switch != llm.Router || c.Abilities.Slots != 4 {
		t.Fatalf("it can %+v", c.Abilities)
	}
	for _, step := range []error{c.Load(ctx, "a"), c.Load(ctx, "a"), c.Unload(ctx, "a"), c.Unload(ctx, "a"), c.Load(ctx, "b")} {
		if step != nil {
			t.Fatal(step)
		}
	}
	if state, err := c.State(ctx, "b"); err != nil || state != (llm.State{Slots: 4}) {
		t.Errorf("state %+v, %v", state, err)
	}
	a, err := c.Complete(ctx, &llm.Request{Model: "a", Prompt: "x", MaxTokens: 9}, nil)
	if err != nil || a.Text != fake.Text("a", "x", 9) || a.Finish != "length" || a.Usage.OutputTokens != 9 || a.Usage.PromptTokens != 1 {
		t.Errorf("%+v, %v", a, err)
	}
	if n := s.Counts(); strings.Join(n.Loads, "") != "aba" || n.Unloads != 2 || n.Completions != 1 {
		t.Errorf("counts %+v", n)
	}
}

// Of servers that sleep one is awake, and one that sleeps writes nothing. One that is
// killed leaves the memory to others.
func TestSleep(t *testing.T) {
	ctx, gpu := context.Background(), &fake.GPU{}
	opt := fake.Options{Plain: true, Loads: true, Sleeps: gpu}
	s, first := start(t, opt)
	_, second := start(t, opt)
	if first.Abilities.Switch != llm.Sleeper || first.Abilities.LoRA != llm.LoRANamed {
		t.Fatalf("it can %+v", first.Abilities)
	}
	if err := second.Load(ctx, "m"); !errors.Is(err, llm.ErrBroken) || gpu.Refused() != 1 {
		t.Errorf("beside another one it wakes with %v", err)
	}
	if _, err := second.Canary(ctx, llm.Use{Model: "m"}, 3); !errors.Is(err, llm.ErrRefused) {
		t.Errorf("asleep it writes: %v", err)
	}
	for _, step := range []error{first.Unload(ctx, "m"), second.Load(ctx, "m"), second.Unload(ctx, "m"), first.Load(ctx, "m")} {
		if step != nil {
			t.Fatal(step)
		}
	}
	if n := s.Counts(); len(n.Loads) != 1 || n.Unloads != 1 {
		t.Errorf("counts %+v", n)
	}
	s.Stop()
	if err := second.Load(ctx, "m"); err != nil || gpu.Refused() != 1 {
		t.Errorf("without the other one it wakes with %v", err)
	}
}

// The faults are what they are called.
func TestFaults(t *testing.T) {
	faults := []fake.Fault{{Full: true}, {Refuse: true}, {DieAt: 3}, {WrongAt: 2}, {HangAt: 4}}
	_, c := start(t, fake.Options{Plain: true, Fault: func(n int, _ string) fake.Fault { return faults[n] }})
	if c.Abilities.Switch != llm.FixedModels {
		t.Fatalf("it can %+v", c.Abilities)
	}
	want := fake.Text("m", "x", 9)
	for i, w := range []struct {
		kind error
		text string
	}{{llm.ErrFull, ""}, {llm.ErrRefused, ""}, {llm.ErrGone, want[:3]}, {nil, want[:1] + "#" + want[2:]}, {context.DeadlineExceeded, want[:4]}} {
		ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
		a, err := c.Complete(ctx, &llm.Request{Model: "m", Prompt: "x", MaxTokens: 9}, nil)
		cancel()
		if !errors.Is(err, w.kind) || a.Text != w.text {
			t.Errorf("%+v: %q, %v, expected %q, %v", faults[i], a.Text, err, w.text, w.kind)
		}
	}
}

// A stopped server is gone, and empty when it is there again; a frozen one says
// nothing until it goes on.
func TestLife(t *testing.T) {
	ctx := context.Background()
	s, c := start(t, fake.Options{})
	if err := c.Load(ctx, "m"); err != nil {
		t.Fatal(err)
	}
	s.Stop()
	if err := c.Alive(ctx); !errors.Is(err, llm.ErrGone) {
		t.Errorf("stopped: %v", err)
	}
	if err := s.Again(); err != nil {
		t.Fatal(err)
	}
	if there, err := c.Loaded(ctx); err != nil || len(there) != 0 {
		t.Errorf("after the start %v are loaded, %v", there, err)
	}
	s.Freeze()
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	if err := c.Alive(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("frozen: %v", err)
	}
	s.Thaw()
	if err := c.Alive(ctx); err != nil {
		t.Error(err)
	}
}
