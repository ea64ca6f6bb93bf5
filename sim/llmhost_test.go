package sim

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"inferplan/formats"
	"inferplan/formats/arrivals"
	"inferplan/formats/document"
	"inferplan/formats/seeded"
	"inferplan/policy"
	"inferplan/policy/balance"
	"inferplan/sim/llm"
)

var smallLLM = formats.Iteration{BaseNS: 13.35e6, SequenceNS: .087e6, ContextNS: 183, PromptNS: .064e6, HingeTokens: 128, AttentionNS: 2}

// instanceTables are tables of instances on devices of one kind that may all run every
// model; instance d begins with model d modulo their number.
func instanceTables(instances int, kv int64, sequences int32, models ...policy.Model) *policy.Tables {
	t := &policy.Tables{Models: models, Kinds: []string{"A100"}, KindCounts: []int32{int32(instances)}}
	for i := range t.Models {
		m := &t.Models[i]
		network := int32(slices.IndexFunc(t.Networks, func(n policy.Network) bool { return n.Name == m.Name }))
		if network < 0 {
			network = int32(len(t.Networks))
			t.Networks = append(t.Networks, policy.Network{Name: m.Name, Bytes: 10, BaseNetwork: -1, LoadTimes: [][2]time.Duration{{600 * time.Millisecond, 4 * time.Second}}})
		}
		m.FirstPipeline, m.NumPipelines = int32(i), 1
		t.Services = append(t.Services, policy.Service{Name: m.Key().String(), FirstPipeline: int32(i), NumPipelines: 1})
		t.Pipelines = append(t.Pipelines, policy.Pipeline{Model: int32(i), Service: int32(i), Network: network, Batch: 1, FirstStage: int32(i), NumStages: 1})
		t.Stages = append(t.Stages, policy.Stage{Pipeline: int32(i), NumDevices: int32(instances), LastBlock: 1, Infer: []time.Duration{time.Second}})
	}
	for d := range instances {
		server := &policy.Server{BlockTokens: 16, SwapGBps: 23.6, HiddenSwapShare: 0.7, WarmBytes: 20}
		for range t.Networks {
			server.Costs = append(server.Costs, policy.ServerCost{Iteration: smallLLM, KVTokens: kv, KVTokenBytes: 1 << 17, MaxSequences: sequences, UnloadTime: 50 * time.Millisecond})
		}
		t.StageDevices = append(t.StageDevices, int32(d))
		t.Devices = append(t.Devices, policy.Device{Share: 1, GPU: int32(d), Uplink: -1, Downlink: -1, Instance: int32(d)})
		t.Instances = append(t.Instances, policy.Instance{MaxSequences: sequences, TokenBudget: 512, ProgressTokens: 32, KVTokens: kv, Server: server})
		t.Resident = append(t.Resident, []int32{int32(d % len(t.Networks))})
	}
	return t
}

// drawnRequests are Poisson arrivals for random models.
func drawnRequests(n int, rps float64, models int, seed uint64) []arrivals.Request {
	rng := seeded.New(seed, "requests")
	var out []arrivals.Request
	at := 0.0
	for range n {
		at += rng.ExpFloat64() / rps
		out = append(out, arrivals.Request{ArrivedAt: time.Duration(at * 1e9), Model: int32(rng.IntN(models)), PromptTokens: 1 + rng.Int32N(600), OutputTokens: 1 + rng.Int32N(200), Session: int64(rng.IntN(20))})
	}
	return out
}

// One instance behind the loop serves as it does alone, to the nanosecond.
func TestServersServeAsAlone(t *testing.T) {
	for _, c := range []struct {
		name     string
		kv       int64
		priority bool
		swap     bool
		prefix   bool
	}{{"room", 100000, false, false, false}, {"short of KV", 2000, false, false, true}, {"swapping", 2000, false, true, false}, {"by priority", 2000, true, false, false}} {
		t.Run(c.name, func(t *testing.T) {
			tables := instanceTables(1, c.kv, 16, policy.Model{Name: "m", Class: "chat", SLO: 20 * time.Second, Priority: 1}, policy.Model{Name: "m", Class: "batch", SLO: time.Minute, Priority: 7})
			v := tables.Instances[0].Server
			v.ByPriority, v.SwapKV, v.PrefixCache = c.priority, c.swap, c.prefix
			list := drawnRequests(300, 4, 2, 3)
			var got []time.Duration
			res, err := Run(context.Background(), Config{
				Tables: tables, Policy: balance.New(tables), Source: arrivals.Slice(list), Verify: true,
				OnCompleted: func(_, answered time.Duration) { got = append(got, answered) },
			})
			if err != nil {
				t.Fatal(err)
			}
			var alone []llm.Request
			for _, r := range list {
				alone = append(alone, llm.Request{ArrivedAt: r.ArrivedAt, Prompt: r.PromptTokens, Output: r.OutputTokens, Session: r.Session, Priority: tables.Models[r.Model].Priority})
			}
			cost := v.Costs[0]
			want, counts, err := llm.ServeAll(llm.Options{TokenBudget: 512, BlockTokens: 16, ByPriority: c.priority, SwapOut: c.swap, SwapBytesPerSecond: 23.6e9, HiddenShare: 0.7, PrefixCache: c.prefix},
				llm.Model{Iteration: cost.Iteration, KVTokens: cost.KVTokens, MaxSequences: cost.MaxSequences, TokenBytes: cost.KVTokenBytes}, alone)
			if err != nil {
				t.Fatal(err)
			}
			var ends []time.Duration
			for _, o := range want {
				ends = append(ends, o.LastToken)
			}
			slices.Sort(ends)
			if !slices.Equal(got, ends) {
				t.Errorf("answers at %v, alone at %v", got[:5], ends[:5])
			}
			if res.Tokens.Preempted != counts.Preempted || res.Tokens.PeakKV != counts.PeakKV || (c.kv < 10000) != (counts.Preempted > 0) {
				t.Errorf("%+v, alone %+v", res.Tokens, counts)
			}
		})
	}
}

// A request that no instance could ever hold ends the run with an error that names it, however often a policy would ask again.
func TestServersRefuseWhatNeverFits(t *testing.T) {
	tables := instanceTables(2, 640, 16, policy.Model{Name: "m", Class: "chat", SLO: 20 * time.Second})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	_, err := Run(ctx, Config{Tables: tables, Policy: balance.New(tables), Source: arrivals.Slice([]arrivals.Request{{PromptTokens: 600, OutputTokens: 40}, {PromptTokens: 600, OutputTokens: 41}})})
	wrong, ok := errors.AsType[*document.Error](err)
	if !ok || wrong.Found != "a request for m/chat of 641 tokens with its answer" || !strings.Contains(wrong.Expected, "640 tokens") {
		t.Errorf("%v", err)
	}
}

// The report judges each class by its own figure, and models that share an
// instance swap.
func TestServersReport(t *testing.T) {
	tables := instanceTables(2, 50000, 16,
		policy.Model{Name: "a", Class: "chat", SLO: 3 * time.Second, SLOFigure: formats.FigureTTFT}, policy.Model{Name: "a", Class: "batch", SLO: 100 * time.Second},
		policy.Model{Name: "b", Class: "chat", SLO: 25 * time.Millisecond, SLOFigure: formats.FigureTPOT})
	list := drawnRequests(400, 2, 3, 5)
	res, err := Run(context.Background(), Config{Tables: tables, Policy: balance.New(tables), Source: arrivals.Slice(list), Verify: true})
	if err != nil {
		t.Fatal(err)
	}
	r := res.Report
	if err := r.Validate(); err != nil {
		t.Error(err)
	}
	if len(r.Classes) != 2 || r.Classes[0].Class != "chat" || r.Classes[0].Requests+r.Classes[1].Requests != 400 || r.Classes[1].Requests != r.Models[1].Requests {
		t.Fatalf("classes %+v", r.Classes)
	}
	if k := r.Classes[1]; k.Attainment != r.Models[1].Attainment || k.E2EP99US != r.Models[1].Latency.P99US || k.TTFTP99US == 0 || k.TTFTP99US >= k.E2EP99US || k.TPOTP99US < 13000 {
		t.Errorf("batch: %+v, the model's latency %+v", k, r.Models[1].Latency)
	}
	in := func(m int) int64 { return r.Models[m].Completed - r.Models[m].Late }
	if got := float64(in(0)+in(2)) / float64(r.Models[0].Requests+r.Models[2].Requests); got != r.Classes[0].Attainment || got == 0 || got == 1 {
		t.Errorf("chat attains %v, its models %v", r.Classes[0].Attainment, got)
	}
	if *r.Swaps == 0 || *r.Loads < *r.Swaps || *r.Evictions != 0 {
		t.Errorf("%d swaps, %d loads, %d evictions", *r.Swaps, *r.Loads, *r.Evictions)
	}
	d := r.DeviceTime
	if d == nil || d.Loading == 0 || d.Running == 0 || d.RunningAndLoading != 0 || d.Running+d.Loading+d.Idle < 0.999 {
		t.Errorf("device time %+v", d)
	}
}

// evictingPolicy dispatches to instance 0 what comes, and evicts its first batch at each
// of some instants; what comes back goes to where.
type evictingPolicy struct {
	*eventLog
	keepKV     bool
	nextDevice int32
}

func newEvictingPolicy(keep bool, where int32, at time.Duration) *evictingPolicy {
	p := &evictingPolicy{keepKV: keep, nextDevice: where}
	send := func(now time.Duration, req, batch, device int32, out *policy.Actions) {
		out.List = append(out.List, policy.Action{Kind: policy.Dispatch, HopCount: 1, Batch: batch, Size: 1, TaskFirst: int32(len(out.Tasks)), HopFirst: int32(len(out.Hops))})
		out.Tasks = append(out.Tasks, req)
		out.Hops = append(out.Hops, policy.Hop{Device: device, Uplink: -1, Downlink: -1, XferStart: now, XferEnd: now, Start: now, End: now + 1})
	}
	p.eventLog = &eventLog{act: func(now time.Duration, ev *policy.Event, out *policy.Actions) {
		switch ev.Kind {
		case policy.Arrival:
			send(now, ev.Req, 0, 0, out)
			out.List = append(out.List, policy.Action{Kind: policy.Wake, At: at})
		case policy.Timer:
			tag := int32(0)
			if p.keepKV {
				tag = 1
			}
			out.List = append(out.List, policy.Action{Kind: policy.Evict, Batch: 0, Tag: tag})
		case policy.BatchReturned:
			send(now, 0, 1, p.nextDevice, out)
		}
	}}
	return p
}

// An evicted request goes on where it stopped: its KV is computed anew elsewhere,
// and comes out of the host's memory where it was kept.
func TestServersEvict(t *testing.T) {
	const prompt, output = 1000, 200
	end := func(keep, prefix bool, where int32) (time.Duration, int64) {
		tables := instanceTables(2, 50000, 16, policy.Model{Name: "a", SLO: time.Minute})
		for i := range tables.Instances {
			tables.Instances[i].Server.PrefixCache = prefix
		}
		p := newEvictingPolicy(keep, where, 2*time.Second)
		var answered time.Duration
		res, err := Run(context.Background(), Config{
			Tables: tables, Policy: p, Source: arrivals.Slice([]arrivals.Request{{PromptTokens: prompt, OutputTokens: output, Session: 9}}), Verify: true,
			OnCompleted: func(_, at time.Duration) { answered = at },
		})
		if err != nil {
			t.Fatal(err)
		}
		back, _ := p.eventKinds(policy.BatchReturned)
		if len(back) != 1 || policy.ReturnReason(back[0].Value) != policy.ReturnEvicted || *res.Report.Evictions != 1 {
			t.Fatalf("came back: %+v, %d evictions", back, *res.Report.Evictions)
		}
		return answered, res.Tokens.ComputedPrompt
	}
	tables := instanceTables(1, 50000, 16, policy.Model{Name: "a", SLO: time.Minute})
	c := tables.Instances[0].Server.Costs[0]
	alone, _, err := llm.ServeAll(llm.Options{TokenBudget: 512}, llm.Model{Iteration: c.Iteration, KVTokens: c.KVTokens}, []llm.Request{{Prompt: prompt, Output: output}})
	if err != nil {
		t.Fatal(err)
	}
	elsewhere, computed := end(true, false, 1)
	kept, less := end(true, false, 0)
	again, _ := end(false, false, 0)
	cached, hit := end(false, true, 0)
	// About 140 tokens were made in two seconds: the prompt and they are computed anew.
	if anew := computed - prompt; anew < prompt+100 || anew > prompt+160 || elsewhere > again || elsewhere <= alone[0].LastToken {
		t.Errorf("%d tokens computed anew; answered at %v elsewhere, %v here, %v undisturbed", anew, elsewhere, again, alone[0].LastToken)
	}
	if less != prompt+1 || kept <= alone[0].LastToken || kept >= again {
		t.Errorf("from the host's memory: %d tokens computed, answered at %v, anew %v", less, kept, again)
	}
	if hit >= prompt+32 || cached >= kept {
		t.Errorf("from the prefix cache: %d tokens computed, answered at %v, kept %v", hit, cached, kept)
	}
}

// A load waits for the network before it to go to sleep, which waits for its
// sequences; a network that slept comes back from the host's memory.
func TestServersSwap(t *testing.T) {
	tables := instanceTables(1, 50000, 16, policy.Model{Name: "a", SLO: time.Minute}, policy.Model{Name: "b", SLO: time.Minute})
	step := 0
	p := &eventLog{}
	p.act = func(now time.Duration, ev *policy.Event, out *policy.Actions) {
		send := func(batch int32) {
			out.List = append(out.List, policy.Action{Kind: policy.Dispatch, HopCount: 1, Batch: batch, Size: 1, TaskFirst: int32(len(out.Tasks)), HopFirst: int32(len(out.Hops))})
			out.Tasks = append(out.Tasks, 0)
			out.Hops = append(out.Hops, policy.Hop{Uplink: -1, Downlink: -1, XferStart: now, XferEnd: now, Start: now, End: now + 1})
		}
		change := func(from, to int32) {
			out.List = append(out.List, policy.Action{Kind: policy.Unload, Network: from}, policy.Action{Kind: policy.Load, Network: to})
		}
		switch {
		case ev.Kind == policy.Arrival:
			send(0)
			change(0, 1)
		case ev.Kind == policy.NetworkLoaded && step == 0:
			step++
			change(1, 0)
		case ev.Kind == policy.NetworkLoaded && step == 1:
			step++ // one too many
			out.List = append(out.List, policy.Action{Kind: policy.Load, Network: 1})
		}
	}
	var answered time.Duration
	if _, err := Run(context.Background(), Config{
		Tables: tables, Policy: p, Source: arrivals.Slice([]arrivals.Request{{PromptTokens: 100, OutputTokens: 50}}), Verify: true,
		OnCompleted: func(_, at time.Duration) { answered = at },
	}); err != nil {
		t.Fatal(err)
	}
	gone, goneAt := p.eventKinds(policy.NetworkUnloaded)
	came, cameAt := p.eventKinds(policy.NetworkLoaded)
	if len(gone) != 2 || len(came) != 3 {
		t.Fatalf("%d unloads, %d loads", len(gone), len(came))
	}
	sleep, warm, cold := 50*time.Millisecond, 600*time.Millisecond, 4*time.Second
	want := []time.Duration{answered + sleep, answered + sleep + cold, answered + 2*sleep + cold, answered + 2*sleep + cold + warm}
	if got := []time.Duration{goneAt[0], cameAt[0], goneAt[1], cameAt[1]}; !slices.Equal(got, want) {
		t.Errorf("networks came and went at %v, want %v", got, want)
	}
	if policy.ReturnReason(came[2].Value) != policy.ReturnFull {
		t.Errorf("a second network: %+v, want that there is no room", came[2])
	}
}

// A lost instance loses nothing of what was made, and no request.
func TestServersLost(t *testing.T) {
	tables := instanceTables(3, 3000, 16, policy.Model{Name: "a", SLO: time.Minute}, policy.Model{Name: "b", SLO: time.Minute})
	faults := []Fault{{At: 20 * time.Second, Device: 1}, {At: 25 * time.Second, Device: 0}, {At: 40 * time.Second, Device: 1, ComesBack: true}, {At: 42 * time.Second, Device: 0, ComesBack: true}}
	run := func() *Result {
		res, err := Run(context.Background(), Config{Tables: tables, Policy: balance.New(tables), Source: arrivals.Slice(drawnRequests(500, 4, 2, 8)), Verify: true, Faults: faults})
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	a, b := run(), run()
	if a.Report.Completed != 500 {
		t.Errorf("%+v", a.Report.Counts)
	}
	if !reflect.DeepEqual(a.Report, b.Report) {
		t.Error("the same run gives another report")
	}
}
