package sim_test

import (
	"bufio"
	"compress/gzip"
	"context"
	"encoding/csv"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"inferplan/formats"
	"inferplan/formats/arrivals"
	"inferplan/formats/document"
	"inferplan/policy"
	"inferplan/policy/artifact"
	"inferplan/policy/policies"
	"inferplan/policy/reserve"
	"inferplan/sim"
	"inferplan/testkit/bundletest"
	"inferplan/testkit/reference"
)

type bundle struct {
	plans   []reference.Plan
	profile *formats.Profile
	peers   []map[string]string
}

func loadBundle(t *testing.T, dir string) *bundle {
	t.Helper()
	return &bundle{bundletest.Plans(t), bundletest.Profile(t), readCSV(t, filepath.Join(dir, "peer_results_dev.csv"))}
}

// blockTimes are the times of a model's blocks on a share of a device.
func (b *bundle) blockTimes(t *testing.T, model, gpu string, share, batch int) []formats.Latency {
	t.Helper()
	for i := range b.profile.Models {
		if b.profile.Models[i].Model != model {
			continue
		}
		for _, m := range b.profile.Models[i].Measurements {
			if m.Device == gpu && m.Share == share && m.Batch == batch {
				return m.Blocks
			}
		}
	}
	t.Fatalf("%s was not measured on %s 1/%d at batch %d", model, gpu, share, batch)
	return nil
}

// cutBytes is what crosses after a block.
func (b *bundle) cutBytes(model string, after int) int64 {
	for i := range b.profile.Models {
		if b.profile.Models[i].Model == model {
			return b.profile.Models[i].Blocks[after].CutBytesFP16.Bytes()
		}
	}
	return 0
}

func readCSV(t *testing.T, path string) []map[string]string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	var out []map[string]string
	for _, row := range rows[1:] {
		m := map[string]string{}
		for i, name := range rows[0] {
			m[name] = row[i]
		}
		out = append(out, m)
	}
	return out
}

// plan makes a plan of one DNN of a reference plan. Every stage gets devices
// of its own, so that its placement is simple; shares of one GPU that two
// stages hold would share its NIC, which the artifact does not model either.
func (b *bundle) plan(t *testing.T, r *reference.Plan, dnn int) *formats.Plan {
	t.Helper()
	d := &r.DNNs[dnn]
	p := &formats.Plan{Kind: formats.PlanPool, Policy: formats.PolicySpec{Name: reserve.Name}}
	free := map[string]int{}
	for _, kind := range []string{"L4", "V100", "T4", "P4"} {
		if r.GPUs[kind] > 0 {
			p.Pools = append(p.Pools, formats.Pool{Device: kind, Count: 10 * r.GPUs[kind], MaxShares: 4, PerNode: r.PerNode[kind], NICGbps: r.Gbps})
		}
	}
	m := formats.Deployed{Model: d.Model}
	for _, rp := range d.Pipelines {
		pl := formats.Pipeline{Batch: rp.Partitions[0].Batch}
		for i, part := range rp.Partitions {
			s := formats.Stage{Blocks: part.Blocks, Device: part.GPU, Share: part.Share, Replicas: part.Replicas}
			for batch := 1; batch <= pl.Batch; batch++ {
				us := document.Micros(0)
				for _, block := range b.blockTimes(t, d.Model, part.GPU, part.Share, batch)[part.Blocks[0]:part.Blocks[1]] {
					us += max(block.WallUS, document.Micros(time.Microsecond))
				}
				s.InferUS = append(s.InferUS, us)
			}
			if i+1 < len(rp.Partitions) {
				s.Cut = &formats.Cut{DType: "FP16", Bytes: b.cutBytes(d.Model, part.Blocks[1]-1)}
			}
			per := r.PerNode[part.GPU]
			first := (free[part.GPU] + per - 1) / per * per
			s.Placement = []formats.Placement{{FirstDevice: first, PerDevice: part.Share, Replicas: part.Replicas}}
			free[part.GPU] = first + (part.Replicas+part.Share-1)/part.Share
			pl.Stages = append(pl.Stages, s)
		}
		m.Pipelines = append(m.Pipelines, pl)
	}
	p.Deployment = []formats.Deployed{m}
	p.Section = &formats.PoolPlan{Models: []formats.Served{{Model: d.Model, SLOUS: reference.Micros(d.SLOUS), RPS: d.RPS}}}
	return p
}

func readGaps(t *testing.T, path string) []arrivals.Request {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var out []arrivals.Request
	at := time.Duration(0)
	for s := bufio.NewScanner(z); s.Scan(); {
		us, err := strconv.Atoi(strings.TrimSpace(s.Text()))
		if err != nil {
			t.Fatal(err)
		}
		at += time.Duration(us) * time.Microsecond
		out = append(out, arrivals.Request{ArrivedAt: at})
	}
	return out
}

// streamLosses is what a policy lost on a stream.
type streamLosses struct{ dropped, late int64 }

func (o streamLosses) totalLost() int64 { return o.dropped + o.late }

// recordedStream is a recorded stream of arrivals, the plan that it was recorded for
// and what the artifact counted on it.
type recordedStream struct {
	name            string
	plan            *reference.Plan
	dnn             int
	requests        []arrivals.Request
	countedRequests int64
	artifact        streamLosses
}

func (b *bundle) streams(t *testing.T, dir string) []recordedStream {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "arrivals", "*.txt.gz"))
	if err != nil || len(files) == 0 {
		t.Skipf("no recorded arrivals in %s (%v)", dir, err)
	}
	var out []recordedStream
	for _, file := range files {
		st := recordedStream{name: strings.TrimSuffix(filepath.Base(file), ".txt.gz"), requests: readGaps(t, file)}
		parts := strings.Split(st.name, "_")
		lf := 0
		if _, err := fmt.Sscanf(parts[2]+" "+parts[3], "dnn%d lf%d", &st.dnn, &lf); err != nil {
			t.Fatalf("%s: not group_cluster_dnnI_lfN: %v", file, err)
		}
		for i := range b.plans {
			if b.plans[i].Case == fmt.Sprintf("maf19/%s/%s/w0.3-0.33-0.37", parts[0], parts[1]) && b.plans[i].Algorithm == "PPipe" {
				st.plan = &b.plans[i]
			}
		}
		if st.plan == nil {
			t.Fatalf("%s: no such plan", file)
		}
		for _, r := range st.requests {
			if r.ArrivedAt >= time.Millisecond {
				st.countedRequests++
			}
		}
		if !b.setArtifactCounts(&st, parts[0], parts[1], lf) {
			t.Fatalf("%s: the artifact's counts of this stream are not there", file)
		}
		out = append(out, st)
	}
	return out
}

// setArtifactCounts looks up what the artifact counted on a stream: the repetition with as
// many requests.
func (b *bundle) setArtifactCounts(st *recordedStream, group, cluster string, lf int) bool {
	number := func(text string) int64 { n, _ := strconv.ParseInt(text, 10, 64); return n }
	for _, peer := range b.peers {
		load, _ := strconv.ParseFloat(peer["load_factor"], 64)
		if peer["group"] == group && peer["cluster"] == cluster && peer["model"] == st.plan.DNNs[st.dnn].Model && peer["algorithm"] == "PPipe" &&
			load == float64(lf)/100 && number(peer["requests_counted"]) == st.countedRequests {
			st.artifact = streamLosses{number(peer["dropped"]), number(peer["late"])}
			return true
		}
	}
	return false
}

func (b *bundle) replay(t *testing.T, st *recordedStream, spec formats.PolicySpec, network policy.Topology) streamLosses {
	t.Helper()
	tables, err := policies.CompileOn(b.plan(t, st.plan, st.dnn), network)
	if err != nil {
		t.Fatal(err)
	}
	pol, err := policies.New(spec, tables)
	if err != nil {
		t.Fatal(err)
	}
	r, err := sim.Run(context.Background(), sim.Config{
		Tables: tables, Policy: pol, Source: arrivals.Slice(st.requests), Warmup: time.Millisecond, Verify: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	if r.Report.Requests != st.countedRequests {
		t.Fatalf("%s: %d requests counted, the stream has %d", st.name, r.Report.Requests, st.countedRequests)
	}
	return streamLosses{r.Report.Dropped, r.Report.Late}
}

// On the arrivals that the PPipe artifact's simulator recorded, on its plans and
// on its network, --policy artifact loses request for request what the artifact
// lost, and ours never more. On the network of the cluster document, whose nodes
// share a downlink where the artifact gives every virtual GPU one of its own,
// ours never loses more than the artifact's dispatch does.
func TestAgainstArtifactOnItsArrivals(t *testing.T) {
	dir := bundletest.Dir(t)
	b := loadBundle(t, dir)
	for _, st := range b.streams(t, dir) {
		ours, theirs := formats.PolicySpec{Name: reserve.Name}, formats.PolicySpec{Name: artifact.Name}
		if got := b.replay(t, &st, theirs, policy.TopologyStages); got != st.artifact {
			t.Errorf("%s: the artifact's policy drops %d and has %d late, the artifact itself %d and %d", st.name, got.dropped, got.late, st.artifact.dropped, st.artifact.late)
		}
		same := b.replay(t, &st, ours, policy.TopologyStages)
		if same.totalLost() > st.artifact.totalLost() {
			t.Errorf("%s: reserve loses %d on the artifact's network, the artifact %d", st.name, same.totalLost(), st.artifact.totalLost())
		}
		nodes, nodesTheirs := b.replay(t, &st, ours, policy.TopologyNodes), b.replay(t, &st, theirs, policy.TopologyNodes)
		// A push that is for the better of most may cost one.
		if nodes.totalLost() > nodesTheirs.totalLost()+1 {
			t.Errorf("%s: reserve loses %d on shared NICs, the artifact's dispatch %d", st.name, nodes.totalLost(), nodesTheirs.totalLost())
		}
		t.Logf("%-20s %5d requests: artifact loses %3d, reserve %3d on its network; on shared NICs %3d and %3d", st.name, st.countedRequests, st.artifact.totalLost(), same.totalLost(), nodesTheirs.totalLost(), nodes.totalLost())
	}
}
