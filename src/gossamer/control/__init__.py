"""Operations that the API, the services and the commands share: submitting, info, stop, statistics, domain policies."""
