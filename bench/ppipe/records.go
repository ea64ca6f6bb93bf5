package main

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"path/filepath"

	"inferplan/bench/recorded"
	"inferplan/formats"
	"inferplan/formats/csvfile"
	"inferplan/formats/document"
	"inferplan/testkit/reference"
)

// records hold the measurements, plans and simulations of the artifact and its authors.
type records struct {
	profile *formats.Profile
	digest  string // of the profile
	plans   []reference.Plan
	peers   []peer
	wholeL4 map[string]float64  // by model: microseconds in one piece at batch 1
	groups  map[string][]string // models by group
}

// peer holds the counts of the artifact's simulator in one run.
type peer struct {
	group, cluster, model, algorithm string
	load, attainment                 float64
}

// open reads the reference data.
func (b *records) open(data string) (err error) {
	if b.profile, err = recorded.Profile(data); err != nil {
		return err
	}
	b.digest = keyOf(b.profile)
	if b.plans, err = recorded.Plans(data); err != nil {
		return err
	}
	err = eachRow(data, "peer_results_dev.csv", func(t *csvfile.Table) {
		b.peers = append(b.peers, peer{t.Text("group"), t.Text("cluster"), t.Text("model"), t.Text("algorithm"), t.Number("load_factor", 0, math.MaxFloat64), t.Number("attainment", 0, 1)})
	})
	if err != nil {
		return err
	}
	b.wholeL4, b.groups = map[string]float64{}, map[string][]string{}
	return eachRow(data, "models.csv", func(t *csvfile.Table) {
		model, group := t.Text("model"), t.Text("group")
		b.wholeL4[model] = t.Number("whole_model_L4_us", 1, math.MaxFloat64)
		b.groups[group] = append(b.groups[group], model)
	})
}

// eachRow reads a file of the artifact.
func eachRow(data, name string, read func(t *csvfile.Table)) error {
	t, err := csvfile.OpenTable(filepath.Join(data, "ppipe", name))
	if err != nil {
		return fmt.Errorf("opening the reference data (-data or INFERPLAN_DATA): %w", err)
	}
	err = t.EachRow(func() error {
		read(t)
		return nil
	})
	return errors.Join(err, t.Close())
}

// sustained is the highest load factor at which the artifact's plan attained
// what is asked for a model in its own simulator, late requests counted, mean
// over its repetitions. If it does so at none of the recorded ones, it returns 0.
func (b *records) sustained(ref *reference.Plan, model string) (load float64) {
	attainments := map[float64][]float64{}
	for _, p := range b.peers {
		if p.group == ref.Group && p.cluster == ref.Cluster && p.model == model && p.algorithm == "PPipe" {
			attainments[p.load] = append(attainments[p.load], p.attainment)
		}
	}
	for l, values := range attainments {
		if mean(values) >= asked {
			load = max(load, l)
		}
	}
	return load
}

// keyOf is a short hash of documents, and of other values as text.
func keyOf(parts ...any) string {
	h := sha256.New()
	for _, p := range parts {
		text, err := document.Marshal(p)
		if err != nil {
			text = fmt.Appendf(nil, "%+v", p)
		}
		h.Write(append(text, 0))
	}
	return fmt.Sprintf("%x", h.Sum(nil)[:10])
}
