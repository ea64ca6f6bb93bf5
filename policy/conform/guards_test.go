package conform_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"inferplan/formats"
	"inferplan/policy"
	"inferplan/policy/conform"
	"inferplan/policy/policies"
	"inferplan/sim"
)

// Recording anew defeats the purpose of the guards: they hold what was decided
// before a change against what is decided after it. The flag is for a change that is
// meant to decide otherwise, and for new runs.
var recordGuards = flag.Bool("record-guards", false, "record the simulated runs of testdata/guards anew, which defeats their purpose")

const guardDir = "../../testdata/guards"

// guard is a recorded run of guards.json.
type guard struct {
	Name   string      `json:"name"`
	Plan   string      `json:"plan"`                    // below plans
	Log    string      `json:"log"`                     // below logs, gzip
	Policy guardPolicy `json:"policy,omitzero"`         // absent: the plan's
	Sim    *guardRun   `json:"simulate"`                // null: the executor's, on a real clock
	Calls  int64       `json:"calls"`                   // of the policy
	Log256 string      `json:"log_sha256"`              // of the uncompressed log
	Rep256 string      `json:"report_sha256,omitempty"` // of the simulated report as JSON
}

type guardPolicy struct {
	Name   string             `json:"name"`
	Params map[string]float64 `json:"params,omitempty"`
}

// guardRun is how a run was simulated.
type guardRun struct {
	Seed     uint64       `json:"seed"`
	Load     float64      `json:"load"`
	Duration string       `json:"duration"`
	Network  string       `json:"network,omitempty"`
	Gamma    float64      `json:"gamma_cv,omitempty"` // of the gaps between arrivals; absent: the plan's process
	Jitter   string       `json:"jitter,omitempty"`   // lognormal, normal or exponential
	CV       float64      `json:"jitter_cv,omitempty"`
	Ingress  string       `json:"ingress,omitempty"`
	Egress   string       `json:"egress,omitempty"`
	Warmup   string       `json:"warmup,omitempty"`
	Window   string       `json:"window,omitempty"`
	Faults   []guardFault `json:"faults,omitempty"`
}

type guardFault struct {
	At     string `json:"at"`
	Device int32  `json:"device"`
	Up     bool   `json:"up,omitempty"`
}

func (g *guard) plan(t *testing.T) (*formats.Plan, formats.PolicySpec) {
	t.Helper()
	plan, err := formats.ReadPlan(filepath.Join(guardDir, "plans", g.Plan))
	if err != nil {
		t.Fatal(err)
	}
	if g.Policy.Name != "" {
		return plan, formats.PolicySpec{Name: g.Policy.Name, Params: g.Policy.Params}
	}
	return plan, plan.Policy
}

func length(t *testing.T, text string) time.Duration {
	t.Helper()
	if text == "" {
		return 0
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// config makes the configuration of the simulated run.
func (g *guard) config(t *testing.T) sim.Config {
	t.Helper()
	plan, spec := g.plan(t)
	r := g.Sim
	network := policy.TopologyNodes
	if r.Network != "" {
		network = policy.Topology(r.Network)
	}
	sc, err := sim.NewScenarioOn(plan, network)
	if err != nil {
		t.Fatal(err)
	}
	sc.Policy, sc.Seed, sc.Load, sc.Verify = spec, r.Seed, r.Load, true
	sc.Duration, sc.Warmup, sc.Window = length(t, r.Duration), length(t, r.Warmup), length(t, r.Window)
	sc.Ingress, sc.Egress = length(t, r.Ingress), length(t, r.Egress)
	if r.Gamma > 0 {
		sc.Arrivals = &formats.Arrivals{Process: "gamma", CV: r.Gamma}
	}
	for _, f := range r.Faults {
		sc.Faults = append(sc.Faults, sim.Fault{At: length(t, f.At), Device: f.Device, ComesBack: f.Up})
	}
	if r.Jitter != "" {
		dist, ok := map[string]sim.Distribution{"lognormal": sim.Lognormal, "normal": sim.Normal, "exponential": sim.Exponential}[r.Jitter]
		if !ok {
			t.Fatalf("jitter %q", r.Jitter)
		}
		sc.Service = func(seed uint64) (sim.Service, error) { return sim.JitterService(sc.Tables, dist, r.CV, seed), nil }
	}
	cfg, err := sc.Config(0)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// simulate runs twice: for the log, and without a recorder for the report.
func (g *guard) simulate(t *testing.T) (log []byte, calls int64, report string) {
	t.Helper()
	var w bytes.Buffer
	w.WriteString(v1Header)
	cfg := g.config(t)
	rec := &v1Recorder{Policy: cfg.Policy, w: &w}
	cfg.Policy = rec
	if _, err := sim.Run(context.Background(), cfg); err != nil {
		t.Fatal(err)
	}
	res, err := sim.Run(context.Background(), g.config(t))
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(res.Report)
	if err != nil {
		t.Fatal(err)
	}
	return w.Bytes(), rec.calls, sha256Of(b)
}

func sha256Of(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

func readGuards(t *testing.T) []guard {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(guardDir, "guards.json"))
	if err != nil {
		t.Fatal(err)
	}
	var list []guard
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&list); err != nil {
		t.Fatal(err)
	}
	return list
}

func (g *guard) readLog(t *testing.T) []byte {
	t.Helper()
	f, err := os.Open(filepath.Join(guardDir, "logs", g.Log))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Every policy decides today, event by event, what it decided when the logs were
// recorded, by the simulator and by the executor.
func TestGuardLogs(t *testing.T) {
	for _, g := range readGuards(t) {
		t.Run(g.Name, func(t *testing.T) {
			log := g.readLog(t)
			if sum := sha256Of(log); sum != g.Log256 {
				t.Fatalf("the log has the sum %s, expected %s: it is not the recorded one", sum, g.Log256)
			}
			plan, spec := g.plan(t)
			network := policy.TopologyNodes
			if g.Sim != nil && g.Sim.Network != "" {
				network = policy.Topology(g.Sim.Network)
			}
			tables, err := policies.CompileOn(plan, network)
			if err != nil {
				t.Fatal(err)
			}
			pol, err := policies.New(spec, tables)
			if err != nil {
				t.Fatal(err)
			}
			calls, err := replayV1(bytes.NewReader(log), pol)
			if err != nil || calls != g.Calls {
				t.Errorf("after %d of %d calls: %v", calls, g.Calls, err)
			}
		})
	}
}

// replayV1 tells a fresh policy the events of a log and compares its actions with
// the log's.
func replayV1(r io.Reader, pol policy.Policy) (calls int64, err error) {
	b := bufio.NewReader(r)
	head := make([]byte, len(v1Header))
	if _, err := io.ReadFull(b, head); err != nil || string(head) != v1Header {
		return 0, fmt.Errorf("the log starts with %q: %v", head, err)
	}
	var out policy.Actions
	for {
		event, err := v1Record(b)
		if errors.Is(err, io.EOF) {
			return calls, nil
		}
		if err != nil {
			return calls, err
		}
		want, err := v1Record(b)
		if err != nil {
			return calls, err
		}
		e, err := decodeV1(event)
		if err != nil {
			return calls, err
		}
		ev := e.today()
		if again := v1EventOf(time.Duration(e.now), &ev); !bytes.Equal(again.append(nil), event) {
			return calls, fmt.Errorf("the event %+v comes back as %+v", e, again)
		}
		out.Reset()
		pol.Handle(time.Duration(e.now), &ev, &out)
		if got := appendV1(nil, &out, 0); !bytes.Equal(got, want) {
			return calls, fmt.Errorf("at %v, event %+v: the policy gives %+v: % x, the log has % x", time.Duration(e.now), ev, out, got, want)
		}
		calls++
	}
}

// The simulator makes the recorded runs again: the same events in the same order
// with the same answers, and the same report.
func TestGuardRuns(t *testing.T) {
	list := readGuards(t)
	for i := range list {
		g := &list[i]
		if g.Sim == nil {
			continue
		}
		t.Run(g.Name, func(t *testing.T) {
			log, calls, report := g.simulate(t)
			if *recordGuards {
				g.record(t, log, calls, report)
				return
			}
			if sum := sha256Of(log); sum != g.Log256 || calls != g.Calls {
				t.Errorf("a log of %d calls with the sum %s, expected %d with %s; %s", calls, sum, g.Calls, g.Log256, apart(log, g.readLog(t)))
			}
			if report != g.Rep256 {
				t.Errorf("a report with the sum %s, expected %s", report, g.Rep256)
			}
		})
	}
	if *recordGuards {
		b, err := json.MarshalIndent(list, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(guardDir, "guards.json"), append(b, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// apart says at which call two logs part.
func apart(got, want []byte) string {
	a, b := bufio.NewReader(bytes.NewReader(got[len(v1Header):])), bufio.NewReader(bytes.NewReader(want[len(v1Header):]))
	for n := 0; ; n++ {
		x, errX := v1Record(a)
		y, errY := v1Record(b)
		if errX != nil && errY != nil {
			return "the logs do not differ"
		}
		if errX != nil || errY != nil || !bytes.Equal(x, y) {
			return fmt.Sprintf("they part at %s %d: % x, expected % x", []string{"the event of call", "the actions of call"}[n%2], n/2, x, y)
		}
	}
}

func (g *guard) record(t *testing.T, log []byte, calls int64, report string) {
	t.Helper()
	var w bytes.Buffer
	z, err := gzip.NewWriterLevel(&w, gzip.BestCompression)
	if err != nil {
		t.Fatal(err)
	}
	z.Write(log)
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(guardDir, "logs", g.Log), w.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	g.Calls, g.Log256, g.Rep256 = calls, sha256Of(log), report
}

// A policy with another parameter is told apart: the guards can fail.
func TestGuardsCanFail(t *testing.T) {
	g := readGuards(t)[0]
	plan, _ := g.plan(t)
	tables, err := policies.Compile(plan)
	if err != nil {
		t.Fatal(err)
	}
	pol, err := policies.New(formats.PolicySpec{Name: "reserve", Params: map[string]float64{"guard_us": 50_000}}, tables)
	if err != nil {
		t.Fatal(err)
	}
	if calls, err := replayV1(bytes.NewReader(g.readLog(t)), pol); err == nil {
		t.Errorf("another policy agrees with %d calls", calls)
	}
}

// The public reader takes logs of the first form, too: they replay by it as by
// the codec of this test.
func TestReplayReadsTheFirstForm(t *testing.T) {
	for _, g := range readGuards(t) {
		plan, spec := g.plan(t)
		topology := policy.TopologyNodes
		if g.Sim != nil && g.Sim.Network != "" {
			topology = policy.Topology(g.Sim.Network)
		}
		tables, err := policies.CompileOn(plan, topology)
		if err != nil {
			t.Fatal(err)
		}
		pol, err := policies.New(spec, tables)
		if err != nil {
			t.Fatal(err)
		}
		if calls, err := conform.Replay(bytes.NewReader(g.readLog(t)), pol); err != nil || calls != g.Calls {
			t.Errorf("%s: after %d of %d calls: %v", g.Name, calls, g.Calls, err)
		}
	}
}
