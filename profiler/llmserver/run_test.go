package llmserver

import (
	"context"
	"errors"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"inferplan/engine/llm"
	"inferplan/formats"
	"inferplan/profiler"
	simulated "inferplan/sim/llm"
	"inferplan/testkit/llm/llamatest"
	"inferplan/testkit/llm/simserver"
)

func fakeOf(sequences int32) *simserver.Server {
	return &simserver.Server{Options: simulated.Options{TokenBudget: 512}, Model: simulated.Model{KVTokens: 65536, MaxSequences: sequences, Iteration: formats.Iteration{
		BaseNS: 8e6, SequenceNS: 40000, ContextNS: 300, PromptNS: 60000, HingeTokens: 64, AttentionNS: 20, CPUSequenceNS: 200000}}}
}

// What a server is made of is found again from outside: every coefficient that
// matters within a few percent, capacity and sequences as it says, the size of its
// chunks, sleep and wake.
func TestRunRecoversTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := fakeOf(16)
		out := filepath.Join(t.TempDir(), "p.json")
		var e Estimate
		r, err := Run(context.Background(), Options{Server: serve(t, fake), Model: "m", Name: "n", Device: "X", TensorParallel: 2, Budget: 20 * time.Minute, OutPath: out,
			OnEstimate: func(x Estimate) error { e = x; return nil }})
		if err != nil {
			t.Fatal(err)
		}
		if e.Points < 30 || e.OpenPoints > 0 || e.KnownPoints > 0 || !e.Loads || e.ExpectedTime <= 0 {
			t.Errorf("%+v", e)
		}
		m, in := r.Profile.LLMOn("n", "X", 2)
		if in == nil || m.ContextTokens != simserver.Context || in.KVTokens != 65536 || in.KVSource != formats.KVFromServer || in.BlockTokens != 16 || in.Sequences != 16 || in.TokenBudget != 512 || in.Engine != "vllm 1" {
			t.Fatalf("%+v", in)
		}
		if l := in.Loads; l == nil || l.SleepUS.D() != simserver.Sleep || (l.WakeUS.D()-simserver.Wake).Abs() > time.Millisecond || l.ColdUS != 0 || l.WarmUS != 0 {
			t.Errorf("%+v", in.Loads)
		}
		if f := in.Fit; f.DecodeMAPE > 0.005 || f.PrefillMAPE > 0.005 || f.BesideMAPE > 0.01 || f.Interval > 0.01 || f.Points != e.Points || r.Loose > 0 {
			t.Errorf("%+v, %d loose", f, r.Loose)
		}
		near := func(what string, got, want, within float64) {
			if math.Abs(got-want) > within*want {
				t.Errorf("%s: %g, want %g within %.0f %%", what, got, want, 100*within)
			}
		}
		got, want := &in.Iteration, &fake.Model.Iteration
		near("base", got.BaseNS, want.BaseNS, 0.01)
		near("a sequence", got.SequenceNS, want.SequenceNS, 0.1)
		near("CPU of a sequence", got.CPUSequenceNS, want.CPUSequenceNS, 0.02)
		near("context", got.ContextNS, want.ContextNS, 0.01)
		near("a prompt's token", got.PromptNS, want.PromptNS, 0.01)
		near("hinge", got.HingeTokens, want.HingeTokens, 0)
		near("attention", got.AttentionNS, want.AttentionNS, 0.03)
		for _, n := range []int32{32, 300, 2000} {
			near("prefill", float64(got.PrefillTime(n, 512)), float64(want.PrefillTime(n, 512)), 0.01)
		}
		for _, b := range []int32{1, 5, 16} {
			near("decoding", float64(got.TokenTime(b, 1500)), float64(want.TokenTime(b, 1500)), 0.01)
		}
		if b := in.OneBatch; b == nil || b.Sequences != 16 || b.Error < 0.05 {
			t.Errorf("%+v", b)
		}
		data, err := os.ReadFile(PointsFile(out))
		if err != nil || lines(string(data), `"what":"wake"`) != loadRounds || lines(string(data), `"what":"decode"`) < minRounds {
			t.Errorf("%v, %d bytes of samples", err, len(data))
		}
	})
}

// A run that was stopped goes on where it was, and --force begins anew.
func TestRunResumes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := fakeOf(4)
		server := serve(t, fake)
		o := Options{Server: server, Model: "m", Device: "X", Budget: 5 * time.Minute, OutPath: filepath.Join(t.TempDir(), "p.json"), KeepLoaded: true}
		ctx, cancel := context.WithCancel(context.Background())
		n := 0
		o.Progress = func(Event) {
			if n++; n == 60 {
				cancel()
			}
		}
		r, err := Run(ctx, o)
		if !errors.Is(err, context.Canceled) || r == nil || r.Samples < 50 || r.Samples > 60 {
			t.Fatalf("%v, %+v", err, r)
		}
		file, err := os.OpenFile(PointsFile(o.OutPath), os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = file.WriteString(`{"model":"m","dev`) // it died while it wrote
		file.Close()
		var e Estimate
		o.Progress, o.OnEstimate = nil, func(x Estimate) error { e = x; return nil }
		before := r.Samples
		if r, err = Run(context.Background(), o); err != nil || r.Samples < minRounds*e.Points {
			t.Fatalf("%v, %+v", err, r)
		}
		sent := fake.Requests()
		if _, err = Run(context.Background(), o); err != nil || e.KnownPoints != e.Points || e.ExpectedTime != 0 || fake.Requests()-sent > 10 {
			t.Errorf("%v, %+v: %d requests though all is there", err, e, fake.Requests()-sent)
		}
		o.Force = true
		if r, err = Run(context.Background(), o); err != nil || e.KnownPoints != 0 || r.Samples < before {
			t.Errorf("%v, %+v", err, e)
		}
		data, _ := os.ReadFile(PointsFile(o.OutPath))
		if got := lines(string(data), `"model":"m"`); got != r.Samples {
			t.Errorf("%d lines for %d samples", got, r.Samples)
		}
	})
}

// What a server does not tell is not made up; a small budget leaves points out.
func TestRunOfAQuietServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := fakeOf(4)
		fake.Quiet = true
		fake.Refuse = func(prompt int) int {
			if prompt > 1500 {
				return http.StatusBadRequest
			}
			return 0
		}
		r, err := Run(context.Background(), Options{Server: serve(t, fake), Model: "m", Device: "X", Budget: 3 * time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		_, in := r.Profile.LLMOn("m", "X", 1)
		if in.KVTokens != 0 || in.KVSource != "" || in.Loads != nil || in.Sequences != 4 {
			t.Errorf("%+v", in)
		}
		text := strings.Join(r.Profile.Notes, "\n")
		for _, want := range []string{"KV capacity: the server does not tell it", "4 ran side by side and 8 did not", "a prompt of 2048 tokens: left out"} {
			if !strings.Contains(text, want) {
				t.Errorf("%q does not say %q", text, want)
			}
		}
	})
}

func TestRunSaysWhatIsWrong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := fakeOf(4)
		server := serve(t, fake)
		for name, c := range map[string]struct {
			o    Options
			kind error
			says string
		}{
			"unknown": {Options{Model: "x", Device: "X"}, profiler.ErrInput, `no model "x"; it has m`},
			"none":    {Options{Device: "X"}, profiler.ErrInput, "the server has m"},
			"device":  {Options{Model: "m"}, profiler.ErrInput, "kind of the devices"},
			"swap":    {Options{Model: "m", Device: "X", SwapWith: "m"}, profiler.ErrInput, "another model"},
			"budget":  {Options{Model: "m", Device: "X", Budget: time.Millisecond}, profiler.ErrInput, "larger budget"},
		} {
			c.o.Server = server
			if _, err := Run(context.Background(), c.o); !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: %v", name, err)
			}
		}
		fake.Refuse = func(int) int { return http.StatusUnauthorized }
		if _, err := Run(context.Background(), Options{Server: server, Model: "m", Device: "X", Budget: time.Minute}); !errors.Is(err, llm.ErrUnauthorized) {
			t.Error(err)
		}
	})
}

func FuzzSamples(f *testing.F) {
	f.Add(`{"model":"m","device":"X","tensor_parallel":1,"what":"decode","sequences":4,"context":32,"took_us":1234.5,"context_tokens":60,"iterations":1}` + "\n")
	f.Add(`{"model":"m","device":"X","tensor_parallel":1,"what":"beside","took_us":1,"iterations":2,"chunks":3}` + "\n{")
	f.Fuzz(func(t *testing.T, text string) {
		have, err := readSamples([]byte(text), "f", Subject{Model: "m", Device: "X", TensorParallel: 1})
		if err != nil {
			return
		}
		for p, list := range have {
			for _, s := range list {
				if p.Kind == "" || s.TookUS <= 0 || s.Chunks > s.Iterations {
					t.Fatalf("%+v %+v", p, s)
				}
			}
		}
	})
}

// llama.cpp's own server is measured as it is: what it says of itself, loads and
// unloads, a swap by request, prompts and decoding. Of times only the order counts.
func TestLlamaServer(t *testing.T) {
	started := llamatest.Start(t, llamatest.Options{Models: []string{llamatest.TinyA, llamatest.TinyB}})
	ctx := context.Background()
	server, err := llm.Probe(ctx, started.URL)
	if err != nil {
		t.Fatal(err)
	}
	r := &runner{options: Options{Server: server, Model: llamatest.TinyA, SwapWith: llamatest.TinyB}, prober: &prober{server: server, model: llamatest.TinyA, runNumber: 1}, knownSamples: samplesByPoint{}, failures: map[Point]int{}, cost: map[Point]time.Duration{}}
	if took, err := r.coldLoad(ctx); err != nil || took <= 0 {
		t.Fatalf("%v, %v", took, err)
	}
	if c, err := r.prober.begin(ctx); err != nil || c.token <= 0 || r.prober.chars != 1 { // a character is a token
		t.Fatalf("%+v, %v, %v characters a token", c, err, r.prober.chars)
	}
	if f, err := server.Facts(ctx, llamatest.TinyA); err != nil || f.KVTokens != 4*4096 || f.Sequences != 4 || f.Context != 4096 || !strings.HasPrefix(f.Engine, "llama-server ") || f.WeightBytes < 5e6 || f.Doubt != "" {
		t.Errorf("%+v, %v", f, err)
	}
	if err := errors.Join(r.reload(ctx), r.swapTimes(ctx)); err != nil {
		t.Fatal(err)
	}
	for _, what := range []string{load, unload, swap} {
		if n := len(r.knownSamples[Point{Kind: what}]); n != loadRounds {
			t.Errorf("%d samples of %s", n, what)
		}
	}
	if l := r.modelLoads(); l.WarmUS == 0 || l.UnloadUS == 0 || l.SleepUS > 0 {
		t.Errorf("%+v", l)
	}
	short, long, both := Point{Kind: prefill, Prompt: 16}, Point{Kind: prefill, Prompt: 128}, Point{Kind: decode, Sequences: 2, Context: 32}
	for range 3 {
		for _, p := range []Point{short, long, both} {
			if err := r.sampleOnce(ctx, p); err != nil {
				t.Fatal(err)
			}
		}
	}
	if a, b := r.knownSamples[short], r.knownSamples[long]; len(a) == 0 || len(b) == 0 || slices.Min(elapsedTimes(a)) >= slices.Min(elapsedTimes(b)) || a[0].Prompt != 16 || b[0].Prompt != 128 {
		t.Errorf("a prompt of 16 tokens: %+v, of 128: %+v", a, b)
	}
	if len(r.notes) > 0 && !strings.Contains(r.notes[0], "left out") {
		t.Errorf("%q", r.notes)
	}
}
