package main

import (
	"encoding/csv"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"inferplan/formats"
	"inferplan/formats/importer/blocks"
	"inferplan/formats/importer/reference"
)

// records are what the artifact and its authors measured, planned and simulated.
type records struct {
	data       string // folder
	profile    *formats.Profile
	profileKey string
	plans      []reference.Plan
	peers      []peer
	models     map[string]model
	groups     map[string][]string // models by group
}

// model is what the data say of a model beside its measurements.
type model struct {
	group   string
	wholeL4 float64 // microseconds at batch 1
}

// peer is what the artifact's simulator counted in one run.
type peer struct {
	group, cluster, model, algorithm string
	load, rps, attainment            float64
}

const plansFile = "reference_plans_dev.json"

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
		func() error {
			return read("block_latency.csv", func(latency io.Reader) error {
				return read("cut_sizes.csv", func(cuts io.Reader) (err error) {
					b.profile, err = blocks.Read(latency, "block_latency.csv", cuts, "cut_sizes.csv", nil, "block_latency.csv")
					b.profileKey = keyOf(b.profile)
					return err
				})
			})
		},
		func() error {
			return read(plansFile, func(r io.Reader) (err error) { b.plans, err = reference.Read(r, plansFile); return err })
		},
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

// readTable reads a CSV file's named columns, row by row.
func readTable(r io.Reader, names []string, row func(cell map[string]string) error) error {
	rows, err := csv.NewReader(r).ReadAll()
	if err != nil {
		return err
	}
	if len(rows) == 0 {
		return fmt.Errorf("found no header")
	}
	for _, name := range names {
		if !slices.Contains(rows[0], name) {
			return fmt.Errorf("found the columns %v, expected one called %s", rows[0], name)
		}
	}
	for i, cells := range rows[1:] {
		cell := map[string]string{}
		for k, name := range rows[0] {
			cell[name] = cells[k]
		}
		if err := row(cell); err != nil {
			return fmt.Errorf("line %d: %w", i+2, err)
		}
	}
	return nil
}

func readPeers(r io.Reader) ([]peer, error) {
	var out []peer
	err := readTable(r, []string{"group", "cluster", "model", "algorithm", "load_factor", "ppipe_plan_rps", "attainment"}, func(cell map[string]string) (err error) {
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
	return readTable(r, []string{"model", "group", "whole_model_L4_us"}, func(cell map[string]string) error {
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
// over its repetitions; 0: at none of the recorded.
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
