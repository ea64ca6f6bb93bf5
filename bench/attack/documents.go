package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"inferplan/bench/instrument"
	"inferplan/bench/served"
	"inferplan/testkit/llm/fake"
)

var documentWords = []string{
	"format", "inferplan.plan/v2", "inferplan.profile/v1", "inferplan.cluster/v1", "inferplan.workload/v1", "models", "pools", "device", "count", "slo", "weight", "batch", "infer_us", "rps", "blocks", "share",
	"replicas", "placement", "1e15", "1000000000", "100ms", "1ns", "1h", "24GiB", "5x", "L4", "cpu-1", "p99", "poisson", "gamma", "trace", "throughput",
}

// problem is a folder with a profile, a cluster, a workload, their plan and its report, by role. Its documents are seeds, and the verbs
// read a mutant of one with the others.
type problem struct {
	files  map[string]string // paths by role
	margin []string          // flags of solve
}

// with returns a verb with the problem's inputs, of which the mutant takes the place of one.
func (p *problem) with(verb []string, role string) []string {
	use := slices.Clone(verb)
	for _, other := range []string{"profile", "cluster", "workload"} {
		file := p.files[other]
		if other == role {
			file = "FILE"
		}
		use = append(use, "--"+other, file)
	}
	return use
}

// uses returns the uses of mutants of a role that take little time.
func (p *problem) uses(role string) [][]string {
	switch role {
	case "plan":
		return [][]string{{"explain", "FILE"}, {"simulate", "FILE", "--duration", "1s"}, {"diff", p.files["plan"], "FILE"}, p.with([]string{"check", "FILE", "--against", "FILE", "--no-solve"}, "")}
	case "report":
		return [][]string{{"report", "FILE", p.files["report"]}, {"diff", p.files["report"], "FILE"}}
	case "profile", "cluster", "workload":
		uses := [][]string{p.with(slices.Concat([]string{"solve", "-q", "-o", "DIR/out.json"}, p.margin), role)}
		if role == "profile" {
			uses = append(uses, []string{"diff", p.files[role], "FILE"})
		}
		return uses
	case "trace":
		return [][]string{{"simulate", p.files["plan"], "--trace", "FILE", "--duration", "1m"}, {"import", "trace", "FILE", "-o", "DIR/out.csv"}}
	case "records":
		return [][]string{{"import", "records", "FILE", "-o", "DIR/out.json"}}
	}
	return nil
}

// simulate makes the report of a problem's plan.
func (a *attack) simulate(ctx context.Context, p *problem, duration string) error {
	p.files["report"] = filepath.Join(filepath.Dir(p.files["plan"]), "report.json")
	return served.Program{Path: a.Path}.Run(ctx, "simulate", p.files["plan"], "--duration", duration, "-o", p.files["report"])
}

// Files beside the problems.
const (
	goodRecords = "sample_id,model,correct,certainty\n0,a,1,0.9\n0,b,1,0.8\n1,a,0,0.3\n1,b,1,0.7\n"
	goodTrace   = "t_us,id,model,class,prompt_tokens,output_tokens,slo_us\n0,a,alpha,,0,0,\n1500.125,b,beta,,374,44,200000\n3000,c,alpha,,12,9,90000\n"
)

// documents gives mutants of every kind of document to the verbs that read them: those of a small problem, those below testdata/compat,
// and some with all that a document may have.
func (a *attack) documents(r *instrument.Run) error {
	plan, _, err := a.smallPlan(r.Ctx, 2, 5*time.Millisecond, 800*time.Millisecond)
	if err != nil {
		return err
	}
	in := func(name string) string { return filepath.Join(filepath.Dir(plan), name) }
	p := &problem{files: map[string]string{"plan": plan, "profile": in("profile.json"), "cluster": in("cluster.yaml"), "workload": in("workload.yaml")}}
	if err := a.simulate(r.Ctx, p, "1s"); err != nil {
		return err
	}
	uses := func(role string) [][]string {
		list := p.uses(role)
		if role == "plan" {
			list = append(list, p.with([]string{"solve", "--from", "FILE", "-o", "DIR/out.json"}, ""))
		}
		return list
	}
	paths, err := filepath.Glob(filepath.Join(a.root, "testdata/compat/*"))
	if err != nil {
		return err
	}
	var seeds []seed
	for _, role := range []string{"plan", "profile", "cluster", "workload", "report"} {
		paths = append(paths, p.files[role])
	}
	for _, path := range paths {
		role := filepath.Base(path)
		role = role[:strings.IndexAny(role, ".-")]
		if uses(role) == nil {
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("reading a seed: %w", err)
		}
		seeds = append(seeds, seed{role + filepath.Ext(path), text, uses(role)})
	}
	seeds = append(seeds,
		seed{"records.csv", []byte(goodRecords + "2,a,1,0.6\n2,b,0,0.5\n"), uses("records")},
		seed{"workload.yaml", []byte("format: inferplan.workload/v1\nmodels:\n- {model: m, class: fast, slo: 100ms, weight: 0.5}\n- {model: m, class: batch, slo: 1s, percentile: p95, weight: 0.3}\n- {model: words, slo: 4x, weight: 0.2, min_rps: 1}\narrivals: {process: gamma, cv: 2}\n"), uses("workload")},
		seed{"cluster.yaml", []byte("format: inferplan.cluster/v1\npools:\n- {device: L4, count: 25, max_shares: 4, per_node: 1, nic_gbps: 6, memory: 24GiB, usd_per_hour: 0.71, watts: 72}\n"), uses("cluster")},
	)
	return a.runMutants(r, "documents", "mutants of documents", a.count(20_000), seeds, broken(1<<20, documentWords...))
}

// runMutants makes mutants of seeds and states their figures.
func (a *attack) runMutants(r *instrument.Run, stream, claim string, n int, seeds []seed, mutate func(m *mutator, b []byte) []byte) error {
	c, err := a.mutants(r, stream, n, seeds, mutate)
	if err == nil {
		c.state(r, claim)
	}
	return err
}

// magnitudes gives good documents of every kind whose figures are at the ends of what
// they may be to the verbs that read them: work must follow from what devices carry, and
// not from what a document asks for.
func (a *attack) magnitudes(r *instrument.Run) error {
	model, err := fake.Start(fake.Options{Models: []string{"m7", "m13"}, Slots: 4})
	if err != nil {
		return err
	}
	defer model.Stop()
	dirs, err := filepath.Glob(filepath.Join(a.root, "testdata/kinds/*"))
	if err != nil {
		return err
	}
	var seeds []seed
	plans := map[string]string{}
	for _, from := range dirs {
		kind := filepath.Base(from)
		p, err := a.problemOf(r.Ctx, from, kind)
		if err != nil {
			return err
		}
		plans[kind] = p.files["plan"]
		serve := []string{"serve", "FILE", "--engine", "replay", "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--metrics", "off"}
		if kind == "queue" {
			serve = []string{"serve", "FILE", "--server", model.URL(), "--queue", "DIR/requests.db", "--http", "127.0.0.1:0", "--metrics", "off"}
		}
		check := []string{"check", p.files["plan"], "--against", p.files["plan"]}
		for role, path := range p.files {
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			uses := p.uses(role)
			switch role {
			case "plan":
				uses = append(uses, []string{"simulate", "FILE"}, serve, p.with([]string{"check", "FILE", "--against", "FILE"}, ""))
			case "profile", "cluster", "workload":
				uses = append(uses, p.with(append(slices.Clone(check), "--no-solve"), role), p.with(check, role))
			}
			seeds = append(seeds, seed{role + ".json", text, uses})
		}
	}
	slices.SortFunc(seeds, func(a, b seed) int { return strings.Compare(a.name+string(a.text), b.name+string(b.text)) })
	seeds = append(seeds,
		seed{"trace.csv", []byte(goodTrace), [][]string{{"simulate", plans["pool"], "--trace", "FILE"}, {"import", "trace", "FILE", "-o", "DIR/out.csv"}}},
		seed{"trace.csv", []byte(strings.NewReplacer("alpha", "m7", "beta", "m13").Replace(goodTrace)), [][]string{{"simulate", plans["queue"], "--trace", "FILE"}, {"import", "workload", "FILE", "-o", "DIR/out.json"}}},
		seed{"records.csv", []byte(goodRecords), [][]string{{"import", "records", "FILE", "-o", "DIR/out.json"}}},
	)
	return a.runMutants(r, "magnitudes", "documents with figures at the ends of their ranges", a.count(20_000), seeds, (*mutator).extreme)
}

// problemOf copies the small problem of a kind, plans it and simulates the plan.
func (a *attack) problemOf(ctx context.Context, from, kind string) (*problem, error) {
	dir := filepath.Join(a.Folder, "kinds", kind)
	if err := os.CopyFS(dir, os.DirFS(from)); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, err
	}
	p := &problem{files: map[string]string{}}
	for _, role := range []string{"profile", "cluster", "workload", "plan"} {
		p.files[role] = filepath.Join(dir, role+".json")
	}
	if kind != "gear" && kind != "queue" { // where else simulation finds one
		p.margin = []string{"--margin", "0.4"}
	}
	solve := append(p.with([]string{"solve"}, ""), "-o", p.files["plan"])
	if err := (served.Program{Path: a.Path}).Run(ctx, append(solve, p.margin...)...); err != nil {
		return nil, err
	}
	return p, a.simulate(ctx, p, "2s")
}

// onnx gives mutants of model files to `plan profile`.
func (a *attack) onnx(r *instrument.Run) error {
	dir, names := filepath.Join(a.Folder, "models"), []string{"mlp-16", "mlp-64"}
	if err := a.Run(r.Ctx, append([]string{"models", "write", "--dir", dir}, names...)...); err != nil {
		return err
	}
	use := [][]string{{"profile", "FILE", "--budget", "100ms", "--batches", "1", "--blocks", "2", "--on", "cpu", "-o", "DIR/out.json"}}
	fetched := filepath.Join(a.root, "third_party/models/files")
	paths := []string{filepath.Join(fetched, "light_squeezenet.onnx"), filepath.Join(fetched, "light_shufflenet.onnx")}
	for _, name := range names {
		paths = append(paths, filepath.Join(dir, name+".onnx"))
	}
	var seeds []seed
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("reading a seed: %w", err)
		}
		seeds = append(seeds, seed{"m.onnx", text, use})
	}
	words := []string{"Conv", "Relu", "Gemm", "Reshape", "Softmax", "x", "y", "ConstantOfShape", "Squeeze", "\x08\x07", "\x10\x0d", "\xff\xff\xff\xff\x0f", "\x00\x00\x00\x00"}
	return a.runMutants(r, "onnx", "mutants of ONNX files through plan profile", a.count(5_000), seeds, broken(4<<20, words...))
}
