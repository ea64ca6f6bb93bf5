package vqueue

import (
	"cmp"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
)

// RequestFeatures are the properties of a request by which groups are formed (definition 4.1).
type Request struct {
	Model    int32
	Priority int32
	SLO      float64 // seconds from the arrival
	Prompt   float64 // tokens of the prompt
	Output   float64 // tokens expected of the answer
	Arrived  float64 // seconds on the clock of Deadline
	Deadline float64 // seconds
}

// ClusterOptions steer the forming of clusters.
type ClusterOptions struct {
	// MaxClusters is the largest number of clusters per model, without those of mega prompts; 0 means 8.
	Most int
	// MegaFactor is the number of tokens, prompt and output, relative to the model's median from which on a
	// request is a mega prompt; 0 means 8. Mega prompts form clusters of their own, because everything behind one
	// of them waits.
	Mega float64
}

// point is a request in the space of clusters: the logarithms of SLO, prompt and output.
type point [3]float64

// pointOf returns the point of a request.
func pointOf(r *Request) point {
	return point{math.Log(max(r.SLO, 1e-3)), math.Log1p(max(r.Prompt, 0)), math.Log1p(max(r.Output, 0))}
}

// squaredDistance returns the squared Euclidean distance of two points.
func (a point) apart(b point) float64 {
	sum := 0.0
	for k := range a {
		sum += (a[k] - b[k]) * (a[k] - b[k])
	}
	return sum
}

// clusterCentre is a cluster: its centre, and the properties that all its requests share.
type centre struct {
	model, priority int32
	mega            bool
	at              point
}

// Clusters divide requests into kinds: of one model and priority, similar in SLO and lengths.
type Clusters struct {
	centres []centre
	first   []int32   // by model: index of its first centre; one more entry at the end
	mega    []float64 // by model: tokens from which on a request is a mega prompt
}

// spreadGoal is the spread within clusters, as a mean square of logarithms, below which no further clusters are
// made.
const enough = 0.05

// NewClusters forms clusters of a sample of requests by k-means++, separately for each model and priority.
func NewClusters(sample []Request, models int, o ClusterOptions, rng *rand.Rand) (*Clusters, error) {
	if len(sample) == 0 {
		return nil, errors.New("forming clusters: found no requests")
	}
	if o.Most == 0 {
		o.Most = 8
	}
	if o.Mega == 0 {
		o.Mega = 8
	}

	// Divide the sample by model.
	byModel := make([][]int32, models)
	for i := range sample {
		m := sample[i].Model
		if m < 0 || int(m) >= models {
			return nil, errors.New("forming clusters: a request of an unknown model")
		}
		byModel[m] = append(byModel[m], int32(i))
	}
	c := &Clusters{mega: make([]float64, models)}
	for m, members := range byModel {
		c.first = append(c.first, int32(len(c.centres)))
		c.mega[m] = math.Inf(1)
		if len(members) == 0 {
			continue
		}

		// Find the size of a mega prompt.
		tokens := make([]float64, len(members))
		for k, i := range members {
			tokens[k] = sample[i].Prompt + sample[i].Output
		}
		slices.Sort(tokens)
		c.mega[m] = o.Mega * max(tokens[len(tokens)/2], 1)

		// Form clusters of each run of members with the same priority and size class.
		slices.SortStableFunc(members, func(a, b int32) int {
			if d := cmp.Compare(sample[a].Priority, sample[b].Priority); d != 0 {
				return d
			}
			return cmp.Compare(c.megaAsInt(&sample[a]), c.megaAsInt(&sample[b]))
		})
		for len(members) > 0 {
			n := 1
			same := func(a, b *Request) bool { return a.Priority == b.Priority && c.isMega(a) == c.isMega(b) }
			for n < len(members) && same(&sample[members[n]], &sample[members[0]]) {
				n++
			}
			c.divide(sample, members[:n], o.Most, rng)
			members = members[n:]
		}
	}
	c.first = append(c.first, int32(len(c.centres)))
	return c, nil
}

// isMega reports whether a request is a mega prompt.
func (c *Clusters) isMega(r *Request) bool { return r.Prompt+r.Output >= c.mega[r.Model] }

// megaAsInt returns 1 for a mega prompt, else 0.
func (c *Clusters) megaAsInt(r *Request) int {
	if c.isMega(r) {
		return 1
	}
	return 0
}

// addClusters adds clusters of members that share model, priority and size class: the smallest number of clusters
// with a spread below spreadGoal, and at most maxClusters.
func (c *Clusters) divide(sample []Request, members []int32, most int, rng *rand.Rand) {
	points := make([]point, len(members))
	for k, i := range members {
		points[k] = pointOf(&sample[i])
	}

	// Raise the number of clusters until their spread is small.
	var best []point
	for k := 1; k <= min(most, len(points)); k++ {
		var spread float64
		best, spread = kMeans(points, k, rng)
		if spread < enough {
			break
		}
	}
	slices.SortFunc(best, func(a, b point) int { return slices.Compare(a[:], b[:]) })
	r := &sample[members[0]]
	for _, at := range best {
		c.centres = append(c.centres, centre{r.Model, r.Priority, c.isMega(r), at})
	}
}

// kMeans returns k centres by k-means++ (Arthur and Vassilvitskii, 2007), and the mean squared distance of the
// points to them.
func kMeans(points []point, k int, rng *rand.Rand) ([]point, float64) {
	centres := []point{points[rng.IntN(len(points))]}
	nearest := make([]float64, len(points))
	for i := range nearest {
		nearest[i] = math.Inf(1)
	}

	// Choose the first centres: each at random, with a probability proportional to the squared distance from the
	// others.
	for len(centres) < k {
		sum := 0.0
		for i := range points {
			nearest[i] = min(nearest[i], points[i].apart(centres[len(centres)-1]))
			sum += nearest[i]
		}
		if sum == 0 {
			break
		}
		next, left := len(points)-1, rng.Float64()*sum
		for i := range points {
			if left -= nearest[i]; left < 0 {
				next = i
				break
			}
		}
		centres = append(centres, points[next])
	}

	// Move the centres to the means of their points until the distance falls no more.
	sums, counts := make([]point, len(centres)), make([]float64, len(centres))
	spread := math.Inf(1)
	for range 50 {
		clear(sums)
		clear(counts)
		total := 0.0
		for i := range points {
			at, apart := nearestOf(centres, points[i])
			total += apart
			counts[at]++
			for d := range points[i] {
				sums[at][d] += points[i][d]
			}
		}
		for j := range centres {
			for d := range centres[j] {
				if counts[j] > 0 {
					centres[j][d] = sums[j][d] / counts[j]
				}
			}
		}
		total /= float64(len(points))
		if spread-total < 1e-9 {
			return centres, total
		}
		spread = total
	}
	return centres, spread
}

// nearestOf returns the centre that is nearest to a point, and its squared distance.
func nearestOf(centres []point, x point) (at int, apart float64) {
	apart = math.Inf(1)
	for j := range centres {
		if d := centres[j].apart(x); d < apart {
			at, apart = j, d
		}
	}
	return at, apart
}

// ClusterOf returns the cluster of a request: the nearest of its model. A cluster of the same priority is
// preferred, then one of the same size class. If the sample had no requests of the model, it returns -1.
func (c *Clusters) Of(r *Request) int32 {
	best, least := int32(-1), math.Inf(1)
	mega, at := c.isMega(r), pointOf(r)
	for j := c.first[r.Model]; j < c.first[r.Model+1]; j++ {
		x := &c.centres[j]
		apart := x.at.apart(at)
		if x.priority != r.Priority {
			apart += 1e6
		}
		if x.mega != mega {
			apart += 1e3
		}
		if apart < least {
			best, least = j, apart
		}
	}
	return best
}

// IsMega reports whether a cluster consists of mega prompts.
func (c *Clusters) Mega(cluster int32) bool { return c.centres[cluster].mega }

// MemberOrder is the order of a group's members.
type Members uint8

const (
	// ByArrival is first come, first served, as in the paper.
	ByArrival Members = iota
	// ByDeadline serves the earliest deadline first.
	ByDeadline
)

// FormGroups divides requests into groups and returns the indexes of their members. Requests of one cluster, in
// the given order, are cut into pieces of equal size of at most limit(model) requests: delta times the batch
// (Algorithm 1).
func (c *Clusters) Form(requests []Request, order Members, limit func(model int32) int) [][]int32 {
	byCluster := make([][]int32, len(c.centres))
	for i := range requests {
		if k := c.Of(&requests[i]); k >= 0 {
			byCluster[k] = append(byCluster[k], int32(i))
		}
	}

	// Sort each cluster by the order of its members.
	var out [][]int32
	for k, members := range byCluster {
		if len(members) == 0 {
			continue
		}
		slices.SortStableFunc(members, func(a, b int32) int {
			if order == ByDeadline {
				return cmp.Compare(requests[a].Deadline, requests[b].Deadline)
			}
			return cmp.Compare(requests[a].Arrived, requests[b].Arrived)
		})

		// Cut it into pieces of equal size.
		most := max(limit(c.centres[k].model), 1)
		pieces := (len(members) + most - 1) / most
		for i := range pieces {
			out = append(out, members[i*len(members)/pieces:(i+1)*len(members)/pieces])
		}
	}
	return out
}

// QuantileDeadlines returns the deadlines at the quantiles of a group whose members have the given ones, in the
// order of service.
func DeadlinesOf(deadlines []float64) (out [Quantiles]float64) {
	for u := range out {
		out[u] = deadlines[min(int(quantile[u]*float64(len(deadlines))), len(deadlines)-1)]
	}
	return out
}
