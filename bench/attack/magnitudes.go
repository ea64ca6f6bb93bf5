package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"inferplan/bench/figures"
	"inferplan/testkit/llm/fake"
)

// magnitudes gives good documents of every kind whose figures are at the ends of what
// they may be to the verbs that read them: work must follow from what devices carry, and
// not from what a document asks for.
func magnitudes(a *attack, ctx context.Context) ([]figures.Figure, error) {
	seeds, err := kindSeeds(ctx, a)
	if err != nil {
		return nil, err
	}
	model, err := fake.Start(fake.Options{Models: []string{"m7", "m13"}, Slots: 4})
	if err != nil {
		return nil, err
	}
	defer model.Stop()
	for i := range seeds {
		for _, use := range seeds[i].uses {
			for k := range use {
				use[k] = strings.ReplaceAll(use[k], "SERVER", model.URL())
			}
		}
	}
	c, err := a.mutants(ctx, "magnitudes", a.count(20_000), seeds, (*mutator).extreme)
	if err != nil {
		return nil, err
	}
	return c.figure(a, "documents with figures at the ends of their ranges", "magnitudes"), nil
}

// kindSeeds are the small problems of every kind, their plans and reports, and the uses
// of each document.
func kindSeeds(ctx context.Context, a *attack) (out []seed, err error) {
	dirs, err := filepath.Glob(filepath.Join(a.root, "testdata/kinds/*"))
	if err != nil {
		return nil, err
	}
	for _, from := range dirs {
		kind := filepath.Base(from)
		dir := filepath.Join(a.dir, "kinds", kind)
		if err := os.CopyFS(dir, os.DirFS(from)); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
		var margin []string // where else simulation finds one
		if kind != "gear" && kind != "queue" {
			margin = []string{"--margin", "0.4"}
		}
		for _, args := range [][]string{
			append([]string{"solve", "--profile", "profile.json", "--cluster", "cluster.json", "--workload", "workload.json", "-o", "plan.json"}, margin...),
			{"simulate", "plan.json", "--duration", "2s", "-o", "report.json"},
		} {
			if e := a.call(ctx, dir, args...); e.code != 0 {
				return nil, fmt.Errorf("%s: plan %s: %s", kind, strings.Join(args, " "), e.said)
			}
		}
		list, err := seedsOf(dir, kind, margin)
		if err != nil {
			return nil, err
		}
		out = append(out, list...)
	}
	trace := "t_us,id,model,class,prompt_tokens,output_tokens,slo_us\n0,a,alpha,,0,0,\n1500.125,b,beta,,374,44,200000\n3000,c,alpha,,12,9,90000\n"
	pool, queue := filepath.Join(a.dir, "kinds/pool/plan.json"), filepath.Join(a.dir, "kinds/queue/plan.json")
	return append(out,
		seed{"trace.csv", []byte(trace), [][]string{{"simulate", pool, "--trace", "FILE"}, {"import", "trace", "FILE", "-o", "DIR/out.csv"}}},
		seed{"trace.csv", []byte(strings.NewReplacer("alpha", "m7", "beta", "m13").Replace(trace)), [][]string{{"simulate", queue, "--trace", "FILE"}, {"import", "workload", "FILE", "-o", "DIR/out.json"}}},
		seed{"records.csv", []byte("sample_id,model,correct,certainty\n0,a,1,0.9\n0,b,1,0.8\n1,a,0,0.3\n1,b,1,0.7\n"), [][]string{{"import", "records", "FILE", "-o", "DIR/out.json"}}},
	), nil
}

// seedsOf are the documents of a kind in a folder.
func seedsOf(dir, kind string, margin []string) (out []seed, err error) {
	at := func(name string) string { return filepath.Join(dir, name+".json") }
	with := func(verb []string, role string) []string {
		use := slices.Clone(verb)
		for _, other := range []string{"profile", "cluster", "workload"} {
			file := at(other)
			if other == role {
				file = "FILE"
			}
			use = append(use, "--"+other, file)
		}
		return use
	}
	serve := []string{"serve", "FILE", "--engine", "replay", "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--metrics", "off"}
	if kind == "queue" {
		serve = []string{"serve", "FILE", "--server", "SERVER", "--queue", "DIR/requests.db", "--http", "127.0.0.1:0", "--metrics", "off"}
	}
	check := []string{"check", at("plan"), "--against", at("plan")}
	solve := []string{"solve", "-q", "-o", "DIR/out.json"}
	for _, role := range []string{"profile", "cluster", "workload"} {
		uses := [][]string{with(slices.Concat(solve, margin), role), with(slices.Concat(check, []string{"--no-solve"}), role), with(check, role)}
		if role == "profile" {
			uses = append(uses, []string{"diff", at(role), "FILE"})
		}
		text, err := os.ReadFile(at(role))
		if err != nil {
			return nil, err
		}
		out = append(out, seed{role + ".json", text, uses})
	}
	plan, err := os.ReadFile(at("plan"))
	if err != nil {
		return nil, err
	}
	report, err := os.ReadFile(at("report"))
	return append(out,
		seed{"plan.json", plan, [][]string{{"explain", "FILE"}, {"simulate", "FILE", "--duration", "2s"}, {"simulate", "FILE"}, {"diff", at("plan"), "FILE"}, serve,
			with([]string{"check", "FILE", "--against", "FILE", "--no-solve"}, ""), with([]string{"check", "FILE", "--against", "FILE"}, "")}},
		seed{"report.json", report, [][]string{{"report", "FILE", at("report")}, {"diff", at("report"), "FILE"}}},
	), err
}
