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
	"inferplan/formats/importer/bundletest"
	"inferplan/formats/importer/reference"
	"inferplan/policy"
	"inferplan/policy/reserve"
	"inferplan/sim"
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
			return b.profile.Models[i].Blocks[after].CutBytesFP16
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
	m := formats.PlanModel{Model: d.Model, SLOUS: reference.Micros(d.SLOUS), RPS: d.RPS}
	for _, rp := range d.Pipelines {
		pl := formats.Pipeline{Batch: rp.Partitions[0].Batch}
		for i, part := range rp.Partitions {
			s := formats.Stage{Blocks: part.Blocks, Device: part.GPU, Share: part.Share, Replicas: part.Replicas}
			for batch := 1; batch <= pl.Batch; batch++ {
				us := formats.Micros(0)
				for _, block := range b.blockTimes(t, d.Model, part.GPU, part.Share, batch)[part.Blocks[0]:part.Blocks[1]] {
					us += max(block.WallUS, formats.Micros(time.Microsecond))
				}
				s.InferUS = append(s.InferUS, us)
			}
			if i+1 < len(rp.Partitions) {
				s.Cut = &formats.Cut{DType: "FP16", Bytes: b.cutBytes(d.Model, part.Blocks[1]-1)}
			}
			per := r.PerNode[part.GPU]
			first := (free[part.GPU] + per - 1) / per * per
			s.Placement = []formats.Placement{{First: first, PerDevice: part.Share, Replicas: part.Replicas}}
			free[part.GPU] = first + (part.Replicas+part.Share-1)/part.Share
			pl.Stages = append(pl.Stages, s)
		}
		m.Pipelines = append(m.Pipelines, pl)
	}
	p.Models = []formats.PlanModel{m}
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
		out = append(out, arrivals.Request{At: at})
	}
	return out
}

// On the arrivals that the PPipe artifact's simulator recorded, and on its own
// plans, the policy loses what the artifact loses: the same count on most
// streams, within 5 % on all. The two differ in the downlinks, which the
// artifact gives each virtual GPU in full and we share per node.
func TestAgainstArtifactOnItsArrivals(t *testing.T) {
	dir := bundletest.Dir(t)
	b := loadBundle(t, dir)
	files, err := filepath.Glob(filepath.Join(dir, "arrivals", "*.txt.gz"))
	if err != nil || len(files) == 0 {
		t.Skipf("no recorded arrivals in %s (%v)", dir, err)
	}
	options := []struct {
		name string
		opt  reserve.Options
	}{{"shedding", reserve.Options{Shed: true}}, {"algorithm 1", reserve.Options{}}}
	compared := 0
	for _, file := range files {
		parts := strings.Split(strings.TrimSuffix(filepath.Base(file), ".txt.gz"), "_")
		dnn, err1 := strconv.Atoi(strings.TrimPrefix(parts[2], "dnn"))
		lf, err2 := strconv.Atoi(strings.TrimPrefix(parts[3], "lf"))
		if err1 != nil || err2 != nil {
			t.Fatalf("%s: not group_cluster_dnnI_lfN", file)
		}
		var ref *reference.Plan
		for i := range b.plans {
			if b.plans[i].Case == fmt.Sprintf("maf19/%s/%s/w0.3-0.33-0.37", parts[0], parts[1]) && b.plans[i].Algorithm == "PPipe" {
				ref = &b.plans[i]
			}
		}
		if ref == nil {
			t.Errorf("%s: no such plan", file)
			continue
		}
		requests := readGaps(t, file)
		for k, o := range options {
			tables, err := policy.Compile(b.plan(t, ref, dnn))
			if err != nil {
				t.Fatal(err)
			}
			r, err := sim.Run(context.Background(), sim.Config{
				Tables: tables, Policy: reserve.New(tables, o.opt), Source: arrivals.Slice(requests), Warmup: time.Millisecond, Verify: true,
			})
			if err != nil {
				t.Fatal(err)
			}
			for _, peer := range b.peers {
				f, _ := strconv.ParseFloat(peer["load_factor"], 64)
				if peer["group"] != parts[0] || peer["cluster"] != parts[1] || peer["model"] != ref.DNNs[dnn].Model || peer["algorithm"] != "PPipe" || f != float64(lf)/100 {
					continue
				}
				dropped, _ := strconv.ParseInt(peer["dropped"], 10, 64)
				late, _ := strconv.ParseInt(peer["late"], 10, 64)
				counted, _ := strconv.ParseInt(peer["requests_counted"], 10, 64)
				if counted != r.Report.Requests {
					continue // another repetition
				}
				lost := r.Report.Dropped + r.Report.Late
				t.Logf("%s %s %s: %d requests, artifact lost %d, %s %d (dropped %d, late %d)", filepath.Base(file), ref.DNNs[dnn].Model, o.name, counted, dropped+late, o.name, lost, r.Report.Dropped, r.Report.Late)
				if theirs := dropped + late; k == 0 && float64(lost) > 1+1.05*float64(theirs) {
					t.Errorf("%s: %d requests lost, the artifact loses %d", filepath.Base(file), lost, theirs)
				}
				compared++
			}
		}
	}
	if compared < len(files) {
		t.Errorf("%d comparisons for %d streams", compared, len(files))
	}
}
