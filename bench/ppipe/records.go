package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"inferplan/bench/recorded"
	"inferplan/formats"
	"inferplan/testkit/reference"
)

// records hold the measurements, plans and simulations of the artifact and its authors.
type records struct {
	data       string // folder
	profile    *formats.Profile
	profileKey string
	plans      []reference.Plan
	peers      []peer
	models     map[string]model
	groups     map[string][]string // models by group
}

// model holds the data of a model beside its measurements.
type model struct {
	group   string
	wholeL4 float64 // microseconds at batch 1
}

// peer holds the counts of the artifact's simulator in one run.
type peer struct {
	group, cluster, model, algorithm string
	load, rps, attainment            float64
}

// plansFile is the name of the file of recorded plans in messages.
const plansFile = recorded.PlansFile

// open reads the reference data.
func (b *records) open(data string) error {
	b.data = data
	read := func(name string, into func(io.Reader) error) error {
		f, err := os.Open(filepath.Join(data, "ppipe", name))
		if err != nil {
			return fmt.Errorf("opening the reference data (-data or INFERPLAN_DATA): %w", err)
		}
		defer f.Close()
		if err := into(f); err != nil {
			return fmt.Errorf("reading %s: %w", name, err)
		}
		return nil
	}
	return firstError(
		func() (err error) {
			b.profile, err = recorded.Profile(data)
			b.profileKey = keyOf(b.profile)
			return err
		},
		func() (err error) { b.plans, err = recorded.Plans(data); return err },
		func() error {
			return read("peer_results_dev.csv", func(r io.Reader) (err error) { b.peers, err = readPeers(r); return err })
		},
		func() error { return read("models.csv", b.readModels) },
	)
}

func firstError(steps ...func() error) error {
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func readPeers(r io.Reader) ([]peer, error) {
	var out []peer
	err := recorded.ReadTable(r, []string{"group", "cluster", "model", "algorithm", "load_factor", "ppipe_plan_rps", "attainment"}, func(cell map[string]string) (err error) {
		p := peer{group: cell["group"], cluster: cell["cluster"], model: cell["model"], algorithm: cell["algorithm"]}
		for _, f := range []struct {
			name string
			to   *float64
		}{{"load_factor", &p.load}, {"ppipe_plan_rps", &p.rps}, {"attainment", &p.attainment}} {
			if *f.to, err = strconv.ParseFloat(cell[f.name], 64); err != nil {
				return fmt.Errorf("%s: %w", f.name, err)
			}
		}
		out = append(out, p)
		return nil
	})
	return out, err
}

func (b *records) readModels(r io.Reader) error {
	b.models, b.groups = map[string]model{}, map[string][]string{}
	return recorded.ReadTable(r, []string{"model", "group", "whole_model_L4_us"}, func(cell map[string]string) error {
		whole, err := strconv.ParseFloat(cell["whole_model_L4_us"], 64)
		if err != nil || !(whole > 0) {
			return fmt.Errorf("whole_model_L4_us: found %q, expected a time", cell["whole_model_L4_us"])
		}
		b.models[cell["model"]] = model{cell["group"], whole}
		b.groups[cell["group"]] = append(b.groups[cell["group"]], cell["model"])
		return nil
	})
}

// sustained is the highest load factor at which the artifact's plan attained
// what is asked for a model in its own simulator, late requests counted, mean
// over its repetitions. If it does so at none of the recorded ones, it returns 0.
func (b *records) sustained(ref *reference.Plan, model string) (load float64) {
	at := map[float64]*mean{}
	for _, p := range b.peers {
		if p.group == ref.Group && p.cluster == ref.Cluster && p.model == model && p.algorithm == "PPipe" {
			if at[p.load] == nil {
				at[p.load] = &mean{}
			}
			at[p.load].add(p.attainment)
		}
	}
	for l, s := range at {
		if s.value() >= asked {
			load = max(load, l)
		}
	}
	return load
}
