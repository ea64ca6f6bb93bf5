package gear

import "inferplan/solver/balance"

// Config is how many devices of a kind hold the same models.
type Config struct {
	Kind  int
	Set   uint32
	Count int
}

// devicesWith are the devices of a kind that hold a model. Devices are numbered within
// their kind, configuration by configuration.
func devicesWith(configs []Config, kind, model int) []int {
	return balance.Taking(groupsOf(ofKind(configs, kind)), model)
}

// groupsOf are configurations as machines that take the work of the models they hold.
func groupsOf(configs []Config) []balance.Group {
	groups := make([]balance.Group, len(configs))
	for i, c := range configs {
		groups[i] = balance.Group{Takes: c.Set, Count: c.Count}
	}
	return groups
}

// Replicas are the devices of a kind that hold a model.
func (out *Outcome) Replicas(model, kind int) []int { return devicesWith(out.Configs, kind, model) }

// Placement is what identical devices hold. Loads and splits on them need no linear
// programs: of the work that models bring per unit of time, Load is u*, that of the busiest
// device under the best split, and Split reaches it.
type Placement struct {
	Configs []Config
	*balance.Machines
}

// NewPlacement is the placement of sets of a family's models on counts of devices.
func NewPlacement(models int, sets []uint32, counts []int) *Placement {
	var configs []Config
	for i, n := range counts {
		configs = append(configs, Config{Set: sets[i], Count: n})
	}
	return placementOf(models, configs)
}

func placementOf(models int, configs []Config) *Placement {
	return &Placement{configs, balance.NewMachines(models, groupsOf(configs))}
}

// DevicesOf lists the devices that hold a model.
func (pl *Placement) DevicesOf(model int) []int { return devicesWith(pl.Configs, 0, model) }
