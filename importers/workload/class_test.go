package workload

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"inferplan/formats"
	"inferplan/formats/arrivals"
	"inferplan/formats/csvfile"
	"inferplan/formats/document"
	"inferplan/formats/seeded"
)

func read(t *testing.T, text string, o Options) (*Trace, error) {
	t.Helper()
	f, err := csvfile.New(strings.NewReader(text), "trace.csv")
	if err != nil {
		return nil, err
	}
	return Read(f, o)
}

// What a workload's own generator makes is found again in its trace: rate, variation,
// lengths, sessions.
func TestClassesOfASyntheticTrace(t *testing.T) {
	want := formats.Sessions{Turns: 4, SharedTokens: 200, ThinkUS: document.Micros(20 * time.Second), Repeats: 0.8}
	rng := func(name string) *rand.Rand { return seeded.New(1, name) }
	src := arrivals.Gamma(rng("gaps"), 0, 8, 2, 5000*time.Second)
	src = arrivals.WithLengths(src, rng("lengths"), &formats.Lengths{Distribution: "lognormal", Mean: 300, SD: 200, Max: 4000}, &formats.Lengths{Distribution: "normal", Mean: 150, SD: 50, Max: 1000})
	src = arrivals.WithSessions(src, rng("sessions"), &want, 0)
	list, err := arrivals.Collect(src, 100_000)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	b.WriteString("t_s,session,input_tokens,output_tokens,cached_tokens,other\n")
	seen := map[int64]bool{}
	for i, r := range list {
		cached := 200
		if seen[r.Session] || i == 0 {
			cached = 0 // whatever a cache did
		}
		seen[r.Session] = true
		fmt.Fprintf(&b, "%.6f,%d,%d,%d,%d,x\n", r.ArrivedAt.Seconds(), r.Session, r.PromptTokens, r.OutputTokens, cached)
	}
	trace, err := read(t, b.String(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	got := trace.Classes()
	if len(got) != 1 || got[0].Rows != len(list) || !trace.HasTimes {
		t.Fatalf("%+v", got)
	}
	c := got[0]
	near := func(what string, got, want, within float64) {
		if math.Abs(got-want) > within*want {
			t.Errorf("%s: %g, want %g", what, got, want)
		}
	}
	near("rate", c.RPS, 8, 0.05)
	near("variation", c.Arrivals.CV, 2, 0.05)
	near("turns", c.Sessions.Turns, 4, 0.1)
	near("repeats", c.Sessions.Repeats, 0.8, 0.1)
	near("shared", float64(c.Sessions.SharedTokens), 200, 0)
	near("answers", mean(c.Output), 150, 0.02)
	near("new tokens of prompts", mean(c.Prompt), 300, 0.15)
	if c.Sessions.ThinkUS < want.ThinkUS {
		t.Errorf("thinking for %v", c.Sessions.ThinkUS.D())
	}
}

func mean(l *formats.Lengths) float64 {
	sum, n := 0.0, 0.0
	for i, x := range l.Tokens {
		w := 1.0
		if l.Weights != nil {
			w = l.Weights[i]
		}
		sum, n = sum+w*float64(x), n+w
	}
	return sum / n
}

// Models and classes are kept apart; prefixes tell sessions where nothing else does;
// conversations may be told by their rows.
func TestClassesKeepModelsAndSessionsApart(t *testing.T) {
	trace, err := read(t, "t_us,model,class,prompt_tokens,output_tokens\n0,a,chat,10,5\n1000000,b,,20,0\n2000000,a,chat,30,7\n", Options{})
	if err != nil {
		t.Fatal(err)
	}
	got := trace.Classes()
	if len(got) != 2 || got[0].Model != "a" || got[0].Class != "chat" || got[0].RPS != 0.5 || got[0].Sessions != nil || got[0].Arrivals != nil || fmt.Sprint(got[0].Prompt.Tokens) != "[10 30]" || got[1].Model != "b" || fmt.Sprint(got[1].Output.Tokens) != "[1]" {
		t.Errorf("%+v", got)
	}
	trace, err = read(t, "t_s,input_tokens,output_tokens,prefix_hit_tokens_infinite_cache\n0,1000,10,0\n1,1000,10,512\n2,1500,10,512\n3,1200,10,1024\n", Options{})
	if err != nil {
		t.Fatal(err)
	}
	c := trace.Classes()[0]
	if c.Sessions == nil || c.Sessions.SharedTokens != 512 || c.Turns != 3 || c.Sessions.Turns != 1.333 || fmt.Sprint(c.Prompt.Tokens) != "[176 488 988]" {
		t.Errorf("%+v %+v", c.Sessions, c.Prompt)
	}
	trace, err = read(t, "input_tokens,output_tokens\n100,50\n170,30\n200,10\n40,10\n", Options{Consecutive: true})
	if err != nil {
		t.Fatal(err)
	}
	c = trace.Classes()[0]
	if trace.HasTimes || c.RPS != 0 || c.Sessions.Turns != 2 || c.Sessions.ThinkUS != 0 || c.Sessions.Repeats != 0 || fmt.Sprint(c.Prompt.Tokens, c.Prompt.Weights) != "[1 20 40 100] []" {
		t.Errorf("%+v %+v %+v", c, c.Sessions, c.Prompt)
	}
}

func TestReadSaysWhatIsWrong(t *testing.T) {
	for text, want := range map[string]string{
		"":                                 "empty file",
		"t_us,tokens\n":                    "the columns t_us,tokens",
		"t_us,prompt_tokens,output_tokens": "no request",
		"t_us,prompt_tokens,output_tokens\n5,1,1\n4,1,1\n": "trace.csv:3:1",
		"prompt_tokens,output_tokens\n0,1\n":               "a whole number from 1",
		"prompt_tokens,output_tokens\n1,x\n":               "trace.csv:2:3",
	} {
		if _, err := read(t, text, Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	if _, err := read(t, "session,prompt_tokens,output_tokens\na,1,1\n", Options{Consecutive: true}); err == nil {
		t.Error("sessions told twice")
	}
}

func FuzzRead(f *testing.F) {
	f.Add("t_s,session,input_tokens,output_tokens,cached_tokens\n0,a,10,5,0\n1,a,20,5,10\n2,b,10,5,3\n", false)
	f.Add("input_tokens,output_tokens\n100,50\n170,30\n", true)
	f.Fuzz(func(t *testing.T, text string, consecutive bool) {
		file, err := csvfile.New(strings.NewReader(text), "f")
		if err != nil {
			return
		}
		trace, err := Read(file, Options{Consecutive: consecutive})
		if err != nil {
			return
		}
		classes := trace.Classes()
		if _, err := Workload(classes, "m", Target{SLO: document.SLO{Duration: time.Second}}); err != nil && !odd(classes) {
			t.Fatal(err)
		}
	})
}

// odd tells whether classes have what a workload must refuse: the rate of a span of
// next to nothing, or names that are none.
func odd(classes []Class) bool {
	for _, c := range classes {
		if c.RPS != 0 && (c.RPS < 1e-3 || c.RPS > 1e6) || c.Arrivals != nil || strings.TrimFunc(c.Model+c.Class, func(r int32) bool { return r >= '0' && r <= 'z' }) != "" {
			return true
		}
	}
	return false
}

// Classes of several models have names that a workload may have, whatever the models are called.
func TestClassesOfSeveralModels(t *testing.T) {
	trace, err := read(t, "t_s,model,class,input_tokens,output_tokens\n0,org/a:1,,10,5\n1,b,chat,10,5\n2,org/a:1,chat,10,5\n3,b,,10,5\n", Options{})
	if err != nil {
		t.Fatal(err)
	}
	doc, err := Workload(trace.Classes(), "", Target{SLO: document.SLO{Duration: time.Second}})
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, c := range doc.Section.(*formats.LLM).Classes {
		names[c.Class] = true
	}
	if want := map[string]bool{"org-a-1": true, "chat": true, "org-a-1-chat": true, "b": true}; !maps.Equal(names, want) {
		t.Errorf("%v", names)
	}
}
