package cache

import "github.com/sluicehq/sluice/internal/dispatch"

const (
	kindBan          dispatch.Kind = "ban"
	kindEntitlement  dispatch.Kind = "entitlement"
	kindIntegration  dispatch.Kind = "integration"
	kindInvite       dispatch.Kind = "invite"
	kindSubscription dispatch.Kind = "subscription"
	kindThreadMember dispatch.Kind = "thread_member"
)
