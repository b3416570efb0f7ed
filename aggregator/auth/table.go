package auth

import (
	"maps"
	"slices"

	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	reflectionv1alpha "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// rule says who may call a method.
type rule struct {
	// who is Agent, Person, or Unchecked for everybody.
	who Kind
	// verb and resource are what a person needs the right to.
	verb, resource string
	// byNode says that the request names the node that it is about. Permission then waits for the request.
	byNode bool
}

const (
	nodes    = "nodes"
	cleanups = "nodecleanups"
	findings = "findings"
)

// table says of every method who may call it. A method that is not here is refused.
func table() map[string]rule {
	return map[string]rule{
		offrampv1.AgentService_Connect_FullMethodName: {who: Agent, byNode: true},

		offrampv1.FleetService_GetReadiness_FullMethodName: {who: Person, verb: "list", resource: nodes},
		offrampv1.FleetService_ListNodes_FullMethodName:    {who: Person, verb: "list", resource: nodes},
		offrampv1.FleetService_Watch_FullMethodName:        {who: Person, verb: "watch", resource: nodes},
		offrampv1.FleetService_GetNode_FullMethodName:      {who: Person, verb: "get", resource: nodes, byNode: true},
		offrampv1.FleetService_GetDetail_FullMethodName:    {who: Person, verb: "get", resource: nodes, byNode: true},

		offrampv1.FleetService_GetService_FullMethodName:      {who: Person, verb: "list", resource: nodes},
		offrampv1.FleetService_GetCluster_FullMethodName:      {who: Person, verb: "list", resource: nodes},
		offrampv1.FleetService_ListChanges_FullMethodName:     {who: Person, verb: "list", resource: nodes},
		offrampv1.FleetService_ListAcceptances_FullMethodName: {who: Person, verb: "list", resource: nodes},

		// An accepted finding no longer stands in a node's way.
		offrampv1.FleetService_AcceptFinding_FullMethodName:      {who: Person, verb: "accept", resource: findings},
		offrampv1.FleetService_WithdrawAcceptance_FullMethodName: {who: Person, verb: "withdraw", resource: findings},

		offrampv1.CleanupService_Plan_FullMethodName:    {who: Person, verb: "plan", resource: cleanups, byNode: true},
		offrampv1.CleanupService_Apply_FullMethodName:   {who: Person, verb: "apply", resource: cleanups, byNode: true},
		offrampv1.CleanupService_Restore_FullMethodName: {who: Person, verb: "restore", resource: cleanups, byNode: true},

		// A probe has no credentials. The answer is one word; the stream that Watch keeps open is not for everybody.
		healthv1.Health_Check_FullMethodName: {who: Unchecked},
		healthv1.Health_List_FullMethodName:  {who: Person, verb: "list", resource: nodes},
		healthv1.Health_Watch_FullMethodName: {who: Person, verb: "list", resource: nodes},

		reflectionv1.ServerReflection_ServerReflectionInfo_FullMethodName:      {who: Person, verb: "list", resource: nodes},
		reflectionv1alpha.ServerReflection_ServerReflectionInfo_FullMethodName: {who: Person, verb: "list", resource: nodes},
	}
}

// nodeOf finds the node that a message is about. Of an agent's messages only Hello names one.
func nodeOf(message any) (node string, named bool) {
	switch m := message.(type) {
	case *offrampv1.ConnectRequest:
		return m.GetHello().GetNode(), m.GetHello() != nil
	case interface{ GetNode() string }:
		return m.GetNode(), true
	default:
		return "", false
	}
}

// Methods are the full names of the methods that somebody may call.
func Methods() []string {
	return slices.Sorted(maps.Keys(table()))
}
