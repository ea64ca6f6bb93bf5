package verify

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"inferplan/formats"
	"inferplan/formats/arrivals"
	"inferplan/planner/kind"
)

// minShare is the least share of a model's requests that a bucket is planned for. The same share of requests may
// be longer than the largest bucket.
const leastShare = 1e-6

// ReplaceByBuckets replaces the models that the workload asks for by the length buckets that the profile has of them.
// Each bucket is a model with its part of the rate, which follows from the lengths of the requests. It returns
// the assumptions made. A workload that names buckets itself stays as it is.
func Bucketed(d *kind.Documents) (assumed []string, err error) {
	models := formats.ModelsOf(d.Workload)
	if d.Profile == nil || models == nil {
		return nil, nil
	}
	var out formats.WorkloadModels
	for i := range models {
		m := &models[i]
		path := fmt.Sprintf("models[%d].lengths", i)
		buckets := d.Profile.Buckets(m.Model)

		// A model without buckets stays as it is.
		if len(buckets) == 0 || d.Profile.Find(m.Model) != nil {
			if m.Lengths != nil {
				return nil, d.Fail("workload", path, "lengths", "none: the profile has "+m.Model+" at one size",
					"plan profile --shape INPUT=1x32:1x128:1x512 measures a model at several")
			}
			out = append(out, *m)
			continue
		}

		// Replace the model by its buckets, each with its share of the rates.
		shares, err := bucketShares(d, m, buckets, path)
		if err != nil {
			return nil, err
		}
		var parts []string
		for k, b := range buckets {
			if shares[k] == 0 {
				continue
			}
			part := *m
			part.Model, part.Lengths = b.Model, nil
			part.Weight = cmp.Or(m.Weight, 1) * shares[k]
			part.MinRPS, part.BatchBuildRPS = m.MinRPS*shares[k], m.BatchBuildRPS*shares[k]
			out = append(out, part)
			parts = append(parts, fmt.Sprintf("%.3g %% in %s", 100*shares[k], b.Model))
		}
		why := "by the lengths of the workload"
		if m.Lengths == nil {
			why = "each bucket alike: the workload names no lengths"
		}
		assumed = append(assumed, fmt.Sprintf("requests for %s: %s (%s)", m.Key(), strings.Join(parts, ", "), why))
	}
	w := *d.Workload
	w.Section = out
	d.Workload = &w
	return assumed, nil
}

// bucketShares returns the parts of a model's requests that run in each bucket. Without lengths all are equal.
func bucketShares(d *kind.Documents, m *formats.WorkloadModel, buckets []*formats.ProfileModel, path string) ([]float64, error) {
	out := make([]float64, len(buckets))
	if m.Lengths == nil {
		for k := range out {
			out[k] = 1 / float64(len(out))
		}
		return out, nil
	}
	var sizes []string

	// Each bucket takes the requests longer than the bucket before, up to its own length. If inputs are not
	// padded, it takes only those of exactly its length.
	last, outside := 0.0, 0.0
	for k, b := range buckets {
		n := formats.BucketLength(b.Inputs)
		if n == 0 {
			return nil, d.Fail("workload", path, "lengths", "none: the buckets of "+m.Model+" differ in more than a length",
				"name the buckets as models, each with its weight: "+b.Model)
		}
		sizes = append(sizes, fmt.Sprint(n))
		upTo, from := arrivals.ShareUpTo(m.Lengths, n), last
		if b.Bucket.Padding == nil {
			from = arrivals.ShareUpTo(m.Lengths, n-1)
			outside += from - last
		}
		out[k], last = max(upTo-from, 0), max(upTo, last)
	}

	// Refuse lengths that no bucket takes.
	where := strings.Join(sizes, ", ")
	if outside > leastShare {
		return nil, d.Fail("workload", path, fmt.Sprintf("%.3g %% of the requests between the sizes %s", 100*outside, where), "these sizes alone",
			"the profile does not show that answers stay the same where a request is filled up (an input with mask in its name): measure the sizes that requests have")
	}
	if beyond := 1 - last; beyond > leastShare {
		return nil, d.Fail("workload", path, fmt.Sprintf("%.3g %% of the requests longer than the largest size, %s", 100*beyond, sizes[len(sizes)-1]), "lengths up to it",
			"measure a larger size (plan profile --shape), or write max: "+sizes[len(sizes)-1]+" where clients cut what is longer")
	}

	// Plan at least a little for every bucket that has requests.
	for k := range out {
		if out[k] > 0 {
			out[k] = max(out[k], leastShare)
		}
	}
	if !slices.ContainsFunc(out, func(s float64) bool { return s > 0 }) {
		return nil, d.Fail("workload", path, "no request in any size", "lengths within "+where, "")
	}
	return out, nil
}
