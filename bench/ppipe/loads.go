package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"inferplan/bench/instrument"
)

// processesOf returns the arrivals under which part load shows a case: bursty ones for those weighted as maf21. Those weighted equally
// and those that we planned, which would take as long again, have a part of them.
func processesOf(s *scene) []process {
	switch {
	case !strings.HasSuffix(s.family, "21"):
		return []process{poisson}
	case s.ref == nil || strings.HasSuffix(s.name, "/w1-1-1"):
		return []process{gamma(1.5)}
	}
	return []process{gamma(1.5), gamma(2)}
}

// load compares the algorithms.
func (b *bench) load(_ *instrument.Run, t *instrument.Table) error {
	scenes, err := b.scenes("^maf|^ours", b.recorded(algorithms...), b.ours("ours19", weights19), b.ours("ours21", weights21))
	if err != nil {
		return err
	}
	families := map[string][]scene{}
	for _, s := range scenes {
		family := s.family
		if _, weights, ok := strings.Cut(s.name, s.cluster+"/"); ok { // recorded twice, with weights of their own
			family += " " + weights
		}
		families[family] = append(families[family], s)
	}
	for _, family := range slices.Sorted(maps.Keys(families)) {
		for _, p := range processesOf(&families[family][0]) {
			for _, m := range []manner{asArtifact, asOurs} {
				c, err := b.compare(families[family], m, p, algorithms)
				if err != nil {
					return err
				}
				c.rows(t, family, p.name, m, clusters)
				if m == asArtifact {
					b.gains(c, family, b.Command("parts", "load", "cases", cmp.Or(b.cases, "^"+family)), p)
				}
			}
		}
	}
	return nil
}

// baselines holds our NP and DART-r plans of recorded cases against the recorded ones:
// the highest load of each DNN, where load 1 is the promise of the recorded PPipe plan.
func (b *bench) baselines(_ *instrument.Run, t *instrument.Table) error {
	recordedCases, err := b.scenes("^maf19/", b.recorded(algorithms...))
	if err != nil {
		return err
	}
	ownCases, err := b.scenes("^maf19/", b.recorded("PPipe")) // whose other plans are ours
	if err != nil {
		return err
	}
	recordedLoads, err := b.compare(recordedCases, asArtifact, poisson, algorithms)
	if err != nil {
		return err
	}
	ownLoads, err := b.compare(ownCases, asArtifact, poisson, algorithms)
	if err != nil {
		return err
	}
	recordedLoads.rows(t, "recorded", poisson.name, asArtifact, nil)
	ownLoads.rows(t, "ours", poisson.name, asArtifact, nil)
	for _, a := range []string{"DART-r", "NP"} {
		b.AtLeast(fmt.Sprintf("highest load of our %s plans over that of the recorded ones, mean of %d DNNs", a, len(ownLoads.dnns)), "PPipe (USENIX ATC 2025), recorded plans", -0.01, "", ownLoads.load("", a)-recordedLoads.load("", a)).Note = fmt.Sprintf("ours %.3f, recorded %.3f; Poisson, the artifact's dispatch", ownLoads.load("", a), recordedLoads.load("", a))
	}
	return nil
}

// small compares the algorithms on the DNNs one at a time.
func (b *bench) small(_ *instrument.Run, t *instrument.Table) error {
	for _, m := range []manner{asArtifact, asOurs} {
		for _, cluster := range clusters {
			scenes, err := b.scenes(".", b.singly(cluster+"-S"))
			if err == errNoCase {
				continue
			}
			if err != nil {
				return err
			}
			c, err := b.compare(scenes, m, poisson, algorithms)
			if err != nil {
				return err
			}
			c.rows(t, cluster+"-S", poisson.name, m, nil)
		}
	}
	if len(t.Rows) == 0 {
		return errNoCase
	}
	return nil
}
