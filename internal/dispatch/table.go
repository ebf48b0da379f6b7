package dispatch

// Types is the table: every dispatch type of Gateway v10, a line each, by name.
// Read only. A type that is not in it is forwarded as it is.
var Types = [...]Type{
	{Name: "APPLICATION_COMMAND_PERMISSIONS_UPDATE", Payload: "*discordgo.ApplicationCommandPermissionsUpdate"},

	{Name: "AUTO_MODERATION_ACTION_EXECUTION", Payload: "*discordgo.AutoModerationActionExecution"},
	{Name: "AUTO_MODERATION_RULE_CREATE", Payload: "*discordgo.AutoModerationRuleCreate", Cache: Rule{Do: Put, Kind: AutoModRule, ID: ID}},
	{Name: "AUTO_MODERATION_RULE_DELETE", Payload: "*discordgo.AutoModerationRuleDelete", Previous: "*discordgo.AutoModerationRule", Cache: Rule{Do: Remove, Kind: AutoModRule, ID: ID}},
	{Name: "AUTO_MODERATION_RULE_UPDATE", Payload: "*discordgo.AutoModerationRuleUpdate", Previous: "*discordgo.AutoModerationRule", Cache: Rule{Do: Merge, Kind: AutoModRule, ID: ID}},

	{Name: "CHANNEL_CREATE", Payload: "*discordgo.ChannelCreate", Channel: ID, Cache: Rule{Do: Put, Kind: Channel, ID: ID}},
	{Name: "CHANNEL_DELETE", Payload: "*discordgo.ChannelDelete", Previous: "*discordgo.Channel", Channel: ID, Cache: Rule{Do: Remove, Kind: Channel, ID: ID}},
	{Name: "CHANNEL_INFO", Payload: "*discord.ChannelInfo", Cache: Rule{Do: LayList, Kind: Channel, Object: ChannelList, Beside: Voice}},
	{Name: "CHANNEL_PINS_UPDATE", Payload: "*discordgo.ChannelPinsUpdate"},
	{Name: "CHANNEL_UPDATE", Payload: "*discordgo.ChannelUpdate", Previous: "*discordgo.Channel", Channel: ID, Cache: Rule{Do: Merge, Kind: Channel, ID: ID}},

	{Name: "ENTITLEMENT_CREATE", Payload: "*discordgo.EntitlementCreate", Cache: Rule{Do: Put, Kind: Entitlement, ID: ID}},
	{Name: "ENTITLEMENT_DELETE", Payload: "*discordgo.EntitlementDelete", Previous: "*discordgo.Entitlement", Cache: Rule{Do: Remove, Kind: Entitlement, ID: ID}},
	{Name: "ENTITLEMENT_UPDATE", Payload: "*discordgo.EntitlementUpdate", Previous: "*discordgo.Entitlement", Cache: Rule{Do: Merge, Kind: Entitlement, ID: ID}},

	{Name: "GUILD_AUDIT_LOG_ENTRY_CREATE", Payload: "*discordgo.GuildAuditLogEntryCreate"},
	{Name: "GUILD_BAN_ADD", Payload: "*discordgo.GuildBanAdd", Cache: Rule{Do: Put, Kind: Ban, ID: UserObject}},
	{Name: "GUILD_BAN_REMOVE", Payload: "*discordgo.GuildBanRemove", Previous: "*discordgo.GuildBan", Cache: Rule{Do: Remove, Kind: Ban, ID: UserObject}},
	{Name: "GUILD_CREATE", Payload: "*discordgo.GuildCreate", Guild: ID, Cache: Rule{Do: GuildCreate, Kind: Guild, ID: ID, Member: MemberObject}},
	{Name: "GUILD_DELETE", Payload: "*discordgo.GuildDelete", Previous: "*discordgo.Guild", Guild: ID, Cache: Rule{Do: GuildDelete, Kind: Guild, ID: ID}},
	{Name: "GUILD_EMOJIS_UPDATE", Payload: "*discordgo.GuildEmojisUpdate", Previous: "[]*discordgo.Emoji", Cache: Rule{Do: PutList, Kind: Emojis, ID: GuildID, Object: EmojiList}},
	{Name: "GUILD_INTEGRATIONS_UPDATE", Payload: "*discordgo.GuildIntegrationsUpdate"},

	{Name: "GUILD_MEMBERS_CHUNK", Payload: "*discordgo.GuildMembersChunk", Cache: Rule{Do: MembersChunk, Kind: Member}},
	{Name: "GUILD_MEMBER_ADD", Payload: "*discordgo.GuildMemberAdd", Previous: "*discordgo.Member", Cache: Rule{Do: Replace, Kind: Member, ID: UserObject, Beside: MemberCount}},
	{Name: "GUILD_MEMBER_REMOVE", Payload: "*discordgo.GuildMemberRemove", Previous: "*discordgo.Member", Cache: Rule{Do: Remove, Kind: Member, ID: UserObject, Beside: MemberCount}},
	{Name: "GUILD_MEMBER_UPDATE", Payload: "*discordgo.GuildMemberUpdate", Previous: "*discordgo.Member", Cache: Rule{Do: Merge, Kind: Member, ID: UserObject, Part: true}},

	{Name: "GUILD_ROLE_CREATE", Payload: "*discordgo.GuildRoleCreate", Cache: Rule{Do: Put, Kind: Role, ID: RoleObject, Object: RoleObject}},
	{Name: "GUILD_ROLE_DELETE", Payload: "*discordgo.GuildRoleDelete", Previous: "*discordgo.Role", Cache: Rule{Do: Remove, Kind: Role, ID: RoleID}},
	{Name: "GUILD_ROLE_UPDATE", Payload: "*discordgo.GuildRoleUpdate", Previous: "*discordgo.Role", Cache: Rule{Do: Merge, Kind: Role, ID: RoleObject, Object: RoleObject}},

	{Name: "GUILD_SCHEDULED_EVENT_CREATE", Payload: "*discordgo.GuildScheduledEventCreate", Cache: Rule{Do: Put, Kind: ScheduledEvent, ID: ID}},
	{Name: "GUILD_SCHEDULED_EVENT_DELETE", Payload: "*discordgo.GuildScheduledEventDelete", Previous: "*discordgo.GuildScheduledEvent", Cache: Rule{Do: Remove, Kind: ScheduledEvent, ID: ID}},
	{Name: "GUILD_SCHEDULED_EVENT_UPDATE", Payload: "*discordgo.GuildScheduledEventUpdate", Previous: "*discordgo.GuildScheduledEvent", Cache: Rule{Do: Merge, Kind: ScheduledEvent, ID: ID}},
	{Name: "GUILD_SCHEDULED_EVENT_USER_ADD", Payload: "*discordgo.GuildScheduledEventUserAdd"},
	{Name: "GUILD_SCHEDULED_EVENT_USER_REMOVE", Payload: "*discordgo.GuildScheduledEventUserRemove"},

	{Name: "GUILD_SOUNDBOARD_SOUNDS_UPDATE", Payload: "*discord.GuildSoundboardSoundsUpdate", Cache: Rule{Do: MergeList, Kind: SoundboardSound, Object: SoundList}},
	{Name: "GUILD_SOUNDBOARD_SOUND_CREATE", Payload: "*discord.GuildSoundboardSoundCreate", Cache: Rule{Do: Put, Kind: SoundboardSound, ID: SoundID}},
	{Name: "GUILD_SOUNDBOARD_SOUND_DELETE", Payload: "*discord.GuildSoundboardSoundDelete", Previous: "*discord.SoundboardSound", Cache: Rule{Do: Remove, Kind: SoundboardSound, ID: SoundID}},
	{Name: "GUILD_SOUNDBOARD_SOUND_UPDATE", Payload: "*discord.GuildSoundboardSoundUpdate", Previous: "*discord.SoundboardSound", Cache: Rule{Do: Merge, Kind: SoundboardSound, ID: SoundID}},

	{Name: "GUILD_STICKERS_UPDATE", Payload: "*discordgo.GuildStickersUpdate", Previous: "[]*discordgo.Sticker", Cache: Rule{Do: PutList, Kind: Stickers, ID: GuildID, Object: StickerList}},

	{Name: "GUILD_UPDATE", Payload: "*discordgo.GuildUpdate", Previous: "*discordgo.Guild", Guild: ID, Cache: Rule{Do: GuildUpdate, Kind: Guild, ID: ID, Part: true}},

	{Name: "INTEGRATION_CREATE", Payload: "*discordgo.IntegrationCreate", Cache: Rule{Do: Put, Kind: Integration, ID: ID}},
	{Name: "INTEGRATION_DELETE", Payload: "*discordgo.IntegrationDelete", Previous: "*discordgo.Integration", Cache: Rule{Do: Remove, Kind: Integration, ID: ID}},
	{Name: "INTEGRATION_UPDATE", Payload: "*discordgo.IntegrationUpdate", Previous: "*discordgo.Integration", Cache: Rule{Do: Merge, Kind: Integration, ID: ID}},
	{Name: "INTERACTION_CREATE", Payload: "*discordgo.InteractionCreate", Express: true},
	{Name: "INVITE_CREATE", Payload: "*discordgo.InviteCreate", Cache: Rule{Do: Put, Kind: Invite, ID: Code}},
	{Name: "INVITE_DELETE", Payload: "*discordgo.InviteDelete", Previous: "*discordgo.Invite", Cache: Rule{Do: Remove, Kind: Invite, ID: Code}},

	{Name: "MESSAGE_CREATE", Payload: "*discordgo.MessageCreate", Cache: Rule{Do: Put, Kind: Message, ID: ID}},
	{Name: "MESSAGE_DELETE", Payload: "*discordgo.MessageDelete", Previous: "*discordgo.Message", Cache: Rule{Do: Remove, Kind: Message, ID: ID}},
	{Name: "MESSAGE_DELETE_BULK", Payload: "*discordgo.MessageDeleteBulk", Previous: "[]*discordgo.Message", Cache: Rule{Do: RemoveMany, Kind: Message, ID: IDs}},

	{Name: "MESSAGE_POLL_VOTE_ADD", Payload: "*discordgo.MessagePollVoteAdd", Cache: Rule{Do: Raise, Kind: Message, ID: MessageID, Beside: Poll}},
	{Name: "MESSAGE_POLL_VOTE_REMOVE", Payload: "*discordgo.MessagePollVoteRemove", Cache: Rule{Do: Lower, Kind: Message, ID: MessageID, Beside: Poll}},

	{Name: "MESSAGE_REACTION_ADD", Payload: "*discordgo.MessageReactionAdd", Cache: Rule{Do: Raise, Kind: Message, ID: MessageID, Beside: Reactions}},
	{Name: "MESSAGE_REACTION_REMOVE", Payload: "*discordgo.MessageReactionRemove", Cache: Rule{Do: Lower, Kind: Message, ID: MessageID, Beside: Reactions}},
	{Name: "MESSAGE_REACTION_REMOVE_ALL", Payload: "*discordgo.MessageReactionRemoveAll", Previous: "[]*discordgo.MessageReactions", Cache: Rule{Do: Clear, Kind: Message, ID: MessageID, Beside: Reactions}},
	{Name: "MESSAGE_REACTION_REMOVE_EMOJI", Payload: "*discord.MessageReactionRemoveEmoji", Previous: "*discordgo.MessageReactions", Cache: Rule{Do: ClearOne, Kind: Message, ID: MessageID, Beside: Reactions}},

	{Name: "MESSAGE_UPDATE", Payload: "*discordgo.MessageUpdate", Previous: "*discordgo.Message", Cache: Rule{Do: MergeKnown, Kind: Message, ID: ID}},

	{Name: "PRESENCE_UPDATE", Payload: "*discordgo.PresenceUpdate", Previous: "*discordgo.Presence", Cache: Rule{Do: Merge, Kind: Presence, ID: UserObject}},
	{Name: "RATE_LIMITED", Payload: "*discord.RateLimited"},
	{Name: "READY", Payload: "*discordgo.Ready", Cache: Rule{Do: Ready, Kind: User, ID: UserObject, Object: UserObject}},
	{Name: "RESUMED", Payload: "*discordgo.Resumed"},
	{Name: "SOUNDBOARD_SOUNDS", Payload: "*discord.SoundboardSounds", Cache: Rule{Do: ReplaceList, Kind: SoundboardSound, Object: SoundList}},

	{Name: "STAGE_INSTANCE_CREATE", Payload: "*discord.StageInstanceCreate", Cache: Rule{Do: Put, Kind: StageInstance, ID: ID}},
	{Name: "STAGE_INSTANCE_DELETE", Payload: "*discord.StageInstanceDelete", Previous: "*discordgo.StageInstance", Cache: Rule{Do: Remove, Kind: StageInstance, ID: ID}},
	{Name: "STAGE_INSTANCE_UPDATE", Payload: "*discord.StageInstanceUpdate", Previous: "*discordgo.StageInstance", Cache: Rule{Do: Merge, Kind: StageInstance, ID: ID}},

	{Name: "SUBSCRIPTION_CREATE", Payload: "*discordgo.SubscriptionCreate", Cache: Rule{Do: Put, Kind: Subscription, ID: ID}},
	{Name: "SUBSCRIPTION_DELETE", Payload: "*discordgo.SubscriptionDelete", Previous: "*discordgo.Subscription", Cache: Rule{Do: Remove, Kind: Subscription, ID: ID}},
	{Name: "SUBSCRIPTION_UPDATE", Payload: "*discordgo.SubscriptionUpdate", Previous: "*discordgo.Subscription", Cache: Rule{Do: Merge, Kind: Subscription, ID: ID}},

	{Name: "THREAD_CREATE", Payload: "*discordgo.ThreadCreate", Channel: ID, Cache: Rule{Do: Put, Kind: Thread, ID: ID, Member: MemberObject}},
	{Name: "THREAD_DELETE", Payload: "*discordgo.ThreadDelete", Previous: "*discordgo.Channel", Channel: ID, Cache: Rule{Do: Remove, Kind: Thread, ID: ID}},
	{Name: "THREAD_LIST_SYNC", Payload: "*discordgo.ThreadListSync", Previous: "[]*discordgo.Channel", Cache: Rule{Do: SyncThreads, Kind: Thread, Object: ThreadList}},
	{Name: "THREAD_MEMBERS_UPDATE", Payload: "*discordgo.ThreadMembersUpdate", Previous: "[]*discordgo.ThreadMember", Cache: Rule{Do: ThreadMembers, Kind: ThreadMember, ID: RemovedIDs, Beside: MemberCount}},
	{Name: "THREAD_MEMBER_UPDATE", Payload: "*discordgo.ThreadMemberUpdate", Previous: "*discordgo.ThreadMember", Cache: Rule{Do: Merge, Kind: ThreadMember, ID: UserID}},
	{Name: "THREAD_UPDATE", Payload: "*discordgo.ThreadUpdate", Previous: "*discordgo.Channel", Channel: ID, Cache: Rule{Do: Merge, Kind: Thread, ID: ID}},

	{Name: "TYPING_START", Payload: "*discordgo.TypingStart"},
	{Name: "USER_UPDATE", Payload: "*discordgo.UserUpdate", Previous: "*discordgo.User", User: ID, Cache: Rule{Do: Merge, Kind: User, ID: ID}},

	{Name: "VOICE_CHANNEL_EFFECT_SEND", Payload: "*discord.VoiceChannelEffectSend"},
	{Name: "VOICE_CHANNEL_START_TIME_UPDATE", Payload: "*discord.VoiceChannelStartTimeUpdate", Previous: "*discord.VoiceChannel", Cache: Rule{Do: Lay, Kind: Channel, ID: ID, Beside: Voice}},
	{Name: "VOICE_CHANNEL_STATUS_UPDATE", Payload: "*discord.VoiceChannelStatusUpdate", Previous: "*discord.VoiceChannel", Cache: Rule{Do: Lay, Kind: Channel, ID: ID, Beside: Voice}},
	{Name: "VOICE_SERVER_UPDATE", Payload: "*discordgo.VoiceServerUpdate"},
	{Name: "VOICE_STATE_UPDATE", Payload: "*discordgo.VoiceStateUpdate", Previous: "*discordgo.VoiceState", Cache: Rule{Do: MergeVoice, Kind: VoiceState, ID: UserID}},

	{Name: "WEBHOOKS_UPDATE", Payload: "*discordgo.WebhooksUpdate"},
}
