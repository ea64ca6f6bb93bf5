package relaxation

import (
	"cmp"
	"math"
	"slices"

	"inferplan/planner/pool/templates"
	"inferplan/planner/stages"
)

// WaitChoice is a choice of wait bounds with the templates that keep the rule under it, their relaxation, and
// the loss of each.
type WaitChoice struct {
	Catalogue        *templates.Catalogue
	Waits            *templates.WaitBounds
	AllowedTemplates []int
	Relaxation       *Solution
	Bound            float64   // proven so far for plans of the choice
	Losses           []float64 // by template; +Inf if it is not allowed
}

// ComputeLosses sets the loss of each template of the catalogue, in units: how far below the bound of the relaxation
// every plan with it stays at least. Templates that the wait choice does not allow get an infinite loss, so no program
// takes them. It is called once the relaxation is solved.
func (c *WaitChoice) ComputeLosses() {
	c.Losses = slices.Repeat([]float64{math.Inf(1)}, len(c.Catalogue.Templates))
	for _, i := range c.AllowedTemplates {
		c.Losses[i] = TemplateLoss(c.Catalogue, &c.Catalogue.Templates[i], c.Relaxation)
	}
}

// TemplatesByLoss returns the allowed templates by rising loss.
func (c *WaitChoice) TemplatesByLoss() []int {
	byLoss := slices.Clone(c.AllowedTemplates)
	slices.SortStableFunc(byLoss, func(a, b int) int { return cmp.Compare(c.Losses[a], c.Losses[b]) })
	return byLoss
}

// PickTemplates returns the templates of a small integer program: those of basis (such as the ones with a rate in the
// relaxation) and, of each model, the first n of byLoss that a plan can use (of finite loss). All are indexes in the
// catalogue: byLoss by rising loss, and the result sorted and without duplicates.
func (c *WaitChoice) PickTemplates(byLoss, basis []int, n int) []int {
	pickedOfModel, templateSet := make([]int, len(c.Catalogue.Problem.Models)), slices.Clone(basis)
	for _, i := range byLoss {
		if d := c.Catalogue.Templates[i].Model; pickedOfModel[d] < n && !math.IsInf(c.Losses[i], 1) {
			pickedOfModel[d]++
			templateSet = append(templateSet, i)
		}
	}
	slices.Sort(templateSet)
	return slices.Compact(templateSet)
}

// BestTemplates returns the templates with a rate in the relaxation and the n templates of least loss of each model, as
// sorted indexes in the catalogue. A plan that uses a template stays below the bound by its loss at least.
func (c *WaitChoice) BestTemplates(n int) []int {
	return c.PickTemplates(c.TemplatesByLoss(), c.Relaxation.UsedTemplates, n)
}

// maxLossReplicas is the number of replica counts of each stage that TemplateLoss tries.
const maxLossReplicas = 24

// TemplateLoss returns the loss of template t: the least distance of a plan that uses it from the bound of the
// relaxation, whose solution is given. It is in units, as throughput is counted (templates.Units). With θ the
// throughput of a plan, every plan has
//
//	θ <= bound - Σ loss over its templates
//
// because whole replicas of t cost, at the prices of the relaxation, so much more than the rate that they carry is
// worth:
//
//	loss_t = min over integer g >= 1 of  Σ_s π_k(s) g_s / v_s - λ_d min_s X_s g_s
//
// with g_s replicas of stage s on a share 1/v_s of a device of pool k(s), X_s the rate of each, π_k the price of a
// device and λ_d the worth of the model's rate. Devices are priced by the parts that replicas take of them. Rounding
// up to whole devices only adds to the loss. If not even one replica of each stage fits, the loss is +Inf. If all
// stages are on time-shared pools, where no replicas round up, it is 0. A search leaves out templates of which the
// loss brings every plan that uses them below its best one.
func TemplateLoss(c *templates.Catalogue, t *stages.Template, solved *Solution) float64 {
	// The minimum lies at a rate, in units, at which the replica count of some stage must grow. lossAt tries one rate, up to
	// maxUnits, which the template carries with all devices.
	rateDual := solved.RateDual[t.Model]
	unitRPS := c.Units.ModelRPS[t.Model]
	maxUnits := c.Problem.MaxRate(t) / unitRPS
	exclusive, onTimeShared := false, false
	minLoss, lastRate := math.Inf(1), math.Inf(1) // lastRate: up to it all rates were tried; +Inf if all up to maxUnits
	lossAt := func(units float64) { minLoss = min(minLoss, replicaPrice(c, t, solved, units, unitRPS)-rateDual*units) }

	// If a stage is on a time-shared pool, try nearly no rate and the highest one.
	for i := range t.Stages {
		if !c.Problem.Pools[t.Stages[i].Pool].TimeShared {
			continue
		}
		// The cost of a time-shared stage grows with every request. So the least loss may lie just after the next replica
		// of another stage has begun: the first with nearly no rate, the others below. From there to the next beginning it
		// grows or falls steadily, so beside these rates only the last one before, and maxUnits, can have the least loss.
		onTimeShared = true
		lossAt(maxUnits * 1e-6)
		lossAt(maxUnits)
		break
	}

	// Try the rates of 1, 2, ... replicas of each stage on an exclusive pool.
	for i := range t.Stages {
		if c.Problem.Pools[t.Stages[i].Pool].TimeShared {
			continue
		}
		exclusive = true
		for replicas := 1; replicas <= maxLossReplicas; replicas++ {
			units := t.Stages[i].Rate * float64(replicas) / unitRPS
			if units > maxUnits*(1+1e-9) {
				break
			}
			lossAt(units)
			if onTimeShared { // just after the next replica has begun
				lossAt(min(units*(1+1e-7), maxUnits))
			}
			if replicas == maxLossReplicas {
				lastRate = min(lastRate, units)
			}
		}
	}
	if !exclusive {
		return 0
	}
	if !math.IsInf(lastRate, 1) {
		// Beyond the rates that were tried, the loss grows at least in proportion to the rate.
		minLoss = min(minLoss, (c.UnitCost(t, solved.PoolPrice)-rateDual)*lastRate)
	}
	if math.IsInf(minLoss, 1) {
		return minLoss // not even one replica of each stage fits
	}
	return max(minLoss, 0)
}

// replicaPrice returns the price of the replicas of template t that carry so many units of its model's rate, at the
// prices of the relaxation, which are in units of throughput. Replicas are whole on exclusive pools, and fractions of the
// devices' time on time-shared ones. unitRPS is the number of requests/s in a unit of the model's rate.
func replicaPrice(c *templates.Catalogue, t *stages.Template, solved *Solution, units, unitRPS float64) float64 {
	price := 0.0
	for i := range t.Stages {
		s := &t.Stages[i]
		replicas := units * unitRPS / s.Rate
		if !c.Problem.Pools[s.Pool].TimeShared {
			replicas = math.Ceil(replicas - 1e-9)
		}
		// PoolPrice is of all devices of the pool together, which hold s.Share replicas each.
		poolReplicas := s.Share * c.Problem.Pools[s.Pool].Count
		price += solved.PoolPrice[s.Pool] * replicas / float64(poolReplicas)
	}
	return price
}
